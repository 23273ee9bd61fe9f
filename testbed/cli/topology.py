"""Commands that only read a topology: ``validate``, ``schema``, ``plan``, ``graph``. No root, no kernel, no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TopologyFile = Annotated[Path, typer.Argument(metavar="FILE", help="The topology.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(validate)
    app.command()(plan)
    app.command()(graph)
    app.command()(schema)


def validate(files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Topologies.")]) -> None:
    """Show every mistake in topologies, with its remedy."""
    from testbed.cli.output import print_error
    from testbed.errors import TopologyError
    from testbed.plan.load import load_topology
    from testbed.plan.text import plan_summary

    wrong = False
    for file in files:
        try:
            _, made = load_topology(file)
        except TopologyError as error:
            wrong = True
            print_error(error)
        else:
            print(f"{file}: OK: {plan_summary(made)}")
    if wrong:
        raise typer.Exit(TopologyError.exit_code)


def plan(
    file: TopologyFile,
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan as JSON.")] = False,
    routes: Annotated[bool, typer.Option("--routes", help="Show every node's routes too.")] = False,
) -> None:
    """Show what a topology becomes: nodes, links, addresses."""
    from testbed.plan.load import load_topology
    from testbed.plan.text import plan_text

    _, made = load_topology(file)
    print(made.model_dump_json(indent=2) if as_json else plan_text(made, routes=routes))


def graph(
    file: TopologyFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="An .svg, .png or .pdf file; default: NAME.svg.")
    ] = None,
) -> None:
    """Draw a topology, with addresses."""
    from testbed.plan.load import load_topology
    from testbed.report.graph import draw

    _, made = load_topology(file)
    path = output or Path(f"{made.name}.svg")
    draw(made, path)
    print(path)


def schema() -> None:
    """Print the JSON Schema of the language, for editors."""
    import json

    from testbed.model.schema import topology_schema
    from testbed.subsystem import subsystems

    made = topology_schema({name: subsystem.spec for name, subsystem in subsystems().items()})
    print(json.dumps(made, indent=2, ensure_ascii=False))
