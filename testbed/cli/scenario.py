"""The command that runs a scenario from topology to report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import complete
from testbed.errors import TestbedError


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(run)
    app.command()(scenarios)


def run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A scenario (see `testbed scenarios`), or its file.", autocompletion=complete.scenarios
        ),
    ],
    topology: Annotated[Path | None, typer.Option("--topology", "-t", help="Instead of the scenario's own.")] = None,
    repeats: Annotated[int, typer.Option("--repeats", "-r", min=1, help="Repeat each measurement.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the topology's own.")] = None,
    runtime: Annotated[str | None, typer.Option(help="`process` or `container` for every node.")] = None,
    impair: Annotated[str | None, typer.Option(help="`netem` or `wire` for links with delay, jitter, loss.")] = None,
    param: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter of the scenario.")] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Where the run folder goes; default: $TESTBED_RUNS, else runs.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the lab up at the end.")] = False,
    pcap: Annotated[
        list[str] | None, typer.Option(metavar="NODE[:IF]", help="Capture packets there into the run's pcap folder.")
    ] = None,
    fidelity: Annotated[bool, typer.Option(help="Try a sample of the links before measuring.")] = True,
    cold: Annotated[bool, typer.Option("--cold", help="Reuse no keys and consensus of an earlier start.")] = False,
) -> None:
    """Run a scenario: lab up, measured, down; a report."""
    from testbed import scenario
    from testbed.cli.progress import shown
    from testbed.net import impair as impairing
    from testbed.runtime import runtimes

    override = runtimes.check_name(runtime)
    with shown() as progress:
        outcome = scenario.run(
            name,
            topology=topology,
            repeats=repeats,
            seed=seed,
            runtime=override,
            impair=impairing.check_name(impair),
            parameters=dict(map(_parameter, param or [])),
            runs=runs,
            keep=keep,
            pcap=pcap or (),
            fidelity=fidelity,
            cold=cold,
            progress=progress,
        )
    for path in outcome.runs:
        _print_result(path)
    raise typer.Exit(outcome.status)


def scenarios(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="All about this one, with its parameters.", autocompletion=complete.scenarios
        ),
    ] = None,
) -> None:
    """List the scenarios and what each asks."""
    import ast

    from testbed import scenario

    if name is not None:
        print(scenario.description(name))
        return
    for name, path in sorted(scenario.scenarios().items()):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        print(f"{name:20} {first}")


def _parameter(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise TestbedError(f"parameter {text!r} has no value", remedy="write --param KEY=VALUE")
    return key, value


def _print_result(path: Path) -> None:
    from testbed.cli.output import print_whole
    from testbed.measure.store import RunReader
    from testbed.report.console import summary_table

    for reason in RunReader(path).invalid:
        print(f"INVALID: {reason}")
    table = summary_table(path)
    if table.row_count:
        print_whole(table)
    print(f"report: {path / 'report.html'}")
