"""Commands about what is measured: ``probe``, ``capture``, ``export``, ``compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import complete, probe
from testbed.cli.lab import LabName, find_lab
from testbed.cli.output import show_blocks
from testbed.cli.run import Root, find_run
from testbed.errors import TestbedError

INVALID = 10
"""Exit status where a run that was compared is INVALID; as of a scenario that recorded one."""


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    probe.register(app)
    app.command()(capture)
    app.command()(export)
    app.command()(compare)


def capture(
    place: Annotated[str, typer.Argument(metavar="NODE[:IF]", help="Where; without IF at all links of NODE.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The first file, or - for a pipe; default: NODE-IF.pcapng.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.001, help="End by itself after so long.")] = None,
    filter: Annotated[str, typer.Option(metavar="EXPR", help="What to capture, as tcpdump has it.")] = "",
    size: Annotated[str, typer.Option(help="The most that one file holds; then the next begins.")] = "64MiB",
    files: Annotated[int, typer.Option(min=1, help="How many files are kept, the newest.")] = 4,
    snaplen: Annotated[int, typer.Option(min=1, help="The most that is kept of one packet, bytes.")] = 262144,
    name: LabName = None,
) -> None:
    """Capture packets in a node into pcapng files.

    Until Ctrl-C, a time or the end of the lab. Shown as they come:
    `testbed capture a:eth0 -o - | wireshark -k -i -`
    """
    from testbed.measure.capture import Capture, parse_place
    from testbed.model.quantities import parse_size_bytes

    lab = find_lab(name)
    node, interface = parse_place(place)
    try:
        file_bytes = parse_size_bytes(size)
    except ValueError as error:
        raise TestbedError(f"--size: {error}", remedy="write --size 64MiB") from error
    stem = node if interface is None else f"{node}-{interface}"
    taking = Capture(
        lab,
        node,
        interface,
        file=output or Path(f"{stem}.pcapng"),
        file_bytes=file_bytes,
        files=files,
        snaplen=snaplen,
        seconds=seconds,
        filter=filter,
    )
    taking.start()
    try:
        taking.wait()
    except KeyboardInterrupt:  # that is how a capture without a time is ended
        pass
    finally:
        result = taking.stop()
    for path in result.files:
        print(path)
    dropped = sum(result.dropped.values())
    removed = f", {result.removed} older files removed" if result.removed else ""
    print(f"{result.packets} packets, {dropped} dropped{removed}", file=sys.stderr)
    if result.error:
        raise TestbedError(f"the capture ended early: {result.error}", where=f"node {node}")


def export(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Name of a run (see `testbed runs`), or its folder.", autocompletion=complete.runs
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write to; default: `export` in the run's.")
    ] = None,
    format: Annotated[str, typer.Option(help="`parquet` or `csv`.")] = "parquet",
    folder: Root = None,
) -> None:
    """Write what a run recorded as tables.

    Events, samples, downloads and steps, with the manifest beside them.
    """
    from testbed.measure.export import export as write
    from testbed.measure.reader import RunReader
    from testbed.measure.store import runs_root

    if format not in ("parquet", "csv"):
        raise TestbedError(f"there is no format {format!r}", remedy="choose parquet or csv")
    path = find_run(run, folder or runs_root())
    for written in write(RunReader(path), output or path / "export", "csv" if format == "csv" else "parquet"):
        print(written)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="Names of two runs or more, or their folders.", autocompletion=complete.runs
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    folder: Root = None,
) -> None:
    """Say which figures of runs differ by more than chance.

    And in what the runs themselves differ. The first is compared with the others.
    """
    import json

    from testbed.measure.reader import RunReader
    from testbed.measure.store import runs_root
    from testbed.report import compare as comparing
    from testbed.report.compare_text import blocks

    root = folder or runs_root()
    found = comparing.compare([RunReader(find_run(run, root)) for run in runs])
    if as_json:
        print(json.dumps(comparing.as_data(found), indent=1))
    else:
        show_blocks(blocks(found))
    if found.invalid:
        raise typer.Exit(INVALID)
