"""Commands that look at runs and make reports. They need neither root nor an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import complete
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.measure.reader import RunReader

Root = Annotated[Path | None, typer.Option("--runs", help="Where run folders lie; default: $TESTBED_RUNS, else runs.")]

_HEAD = ("run", "scenario", "started", "repeats", "status", "validity")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(runs)
    app.command()(report)


def runs(
    folder: Root = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List recorded runs.

    Scenario, date, how they ended, and whether their figures mean anything.
    """
    from testbed.cli.output import print_json
    from testbed.measure.store import runs_in, runs_root
    from testbed.report.blocks import Table
    from testbed.report.console import show

    root = folder or runs_root()
    found = runs_in(root)
    if as_json:
        print_json([dict(zip((*_HEAD, "folder"), (*_row(run), str(run.path)), strict=True)) for run in found])
    elif not found:
        print(f"no runs in {root}")
    else:
        show(Table(_HEAD, [_row(run) for run in found], text=(0, 1, 2, 4, 5)))


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Name of a run (see `testbed runs`), or its folder.", autocompletion=complete.runs
        ),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="HTML file or folder to write to.")] = None,
    folder: Root = None,
) -> None:
    """Make a run's report again from what it recorded.

    Also of a run that goes on or was killed.
    """
    from testbed.measure.store import RunReader, runs_root
    from testbed.measure.validity import verdict
    from testbed.report import build_report

    path = find_run(run, folder or runs_root())
    written = build_report(path, output)
    for reason in verdict(RunReader(path)).invalid:
        print(f"INVALID: {reason}")
    print(written)


def _row(run: RunReader) -> tuple[str, ...]:
    from testbed.measure.validity import verdict

    manifest = run.manifest
    try:
        reasons = len(verdict(run).invalid)
        validity = f"INVALID ({reasons})" if reasons else "valid"
    except TestbedError:
        validity = "cannot be read"
    started = str(manifest.get("started", ""))[:19].replace("T", " ")
    repeats = str(manifest.get("repeats", ""))
    return run.path.name, str(manifest.get("scenario", "")), started, repeats, run.status, validity


def find_run(run: str, root: Path) -> Path:
    """The folder of a run given by name under ``root``, by path, or by the beginning of one name."""
    for path in (root / run, Path(run)):
        if path.is_dir():
            return path
    near = sorted(path for path in root.glob("*") if path.name.startswith(run)) if "/" not in run else []
    if len(near) == 1:
        return near[0]
    what = f"there is no run {run!r}" if not near else f"{run!r} is the beginning of {len(near)} runs"
    remedy = ", ".join(path.name for path in near[:5]) if near else "`testbed runs` lists the runs there are"
    raise TestbedError(what, where=str(root), remedy=remedy)
