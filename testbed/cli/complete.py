"""What a shell may offer for an argument: names of scenarios, faults, runs, labs and nodes. Never an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import typer


def _quietly(names: Callable[[typer.Context], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    """``names`` that begin as typed; none where they cannot be had, as without root those of labs."""

    @wraps(names)
    def offered(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return [name for name in names(ctx) if name.startswith(incomplete)]
        except Exception:  # a message in the middle of a command line helps nobody
            return []

    offered.__annotations__ = {"ctx": typer.Context, "incomplete": str}  # typer finds out by these what to pass
    del offered.__wrapped__
    return offered


@_quietly
def scenarios(_: typer.Context) -> Iterable[str]:
    """Scenarios that `testbed run` finds by name."""
    from testbed import scenario

    return sorted(scenario.scenarios())


@_quietly
def faults(_: typer.Context) -> Iterable[str]:
    """Kinds of faults."""
    from testbed.faults.base import known_faults

    return known_faults()


@_quietly
def runs(ctx: typer.Context) -> Iterable[str]:
    """Recorded runs, in the folder that `--runs` names if it stands before."""
    from testbed.measure.store import runs_in, runs_root

    return [run.path.name for run in runs_in(ctx.params.get("folder") or runs_root())]


@_quietly
def labs(_: typer.Context) -> Iterable[str]:
    """Labs that are up."""
    from testbed.lab.down import running

    return [record.name for record in running()]


@_quietly
def nodes(ctx: typer.Context) -> Iterable[str]:
    """Nodes of the lab that `--name` names, or of the only one."""
    from testbed.lab.down import running
    from testbed.lab.state import Folder

    wanted: Any = ctx.params.get("name")
    (record,) = [one for one in running() if wanted in (None, one.name)]
    return [node["name"] for node in json.loads(Folder(record.id).plan.read_text())["nodes"]]
