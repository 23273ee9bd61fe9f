"""Which state each server of a real pool was in, over the pool's time: from what its agents told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.machine import State
from testbed.pool.lab.course import EVENT, Change, change_of
from testbed.report.blocks import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader

TOLD = "pool"
"""Kind of the events of a pool's agents."""
_SHADES = {State.SERVICE: 0, State.INITIALISING: 1, State.SUSPENDED: 3}
"""Colours by number; to be ready is to wait, and is pale."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A server in one state, seconds of pool time."""

    server: str
    state: State
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One pool from its beginning to its horizon."""

    experiment: str
    repeat: int
    stays: tuple[Stay, ...]


def trials(run: RunReader) -> Iterator[Trial]:
    """Of the pools that were watched to their horizon, in order."""
    changes: list[Change] = []
    for event in sorted((*run.events(TOLD), *run.events(EVENT)), key=lambda event: event.t):
        detail = event.detail
        if event.kind == EVENT:
            if "horizon" in detail:
                stays = _stays(changes, int(detail["horizon"]))
                yield Trial(str(detail["experiment"]), int(detail["repeat"]), tuple(stays))
                changes = []
        elif change := change_of(event.node, detail):
            changes.append(change)


def _stays(changes: Sequence[Change], horizon: int) -> Iterator[Stay]:
    for server in sorted({change.server for change in changes}):
        mine = sorted((change for change in changes if change.server == server), key=lambda change: change.at)
        ends = [change.at for change in mine[1:]] + [horizon]
        for change, end in zip(mine, ends, strict=True):
            if change.at < horizon:
                yield Stay(server, change.state, change.at / SECOND, min(end, horizon) / SECOND)


def figures(run: RunReader) -> list[Figure]:
    """One for each experiment, from its first repeat."""
    first: dict[str, Trial] = {}
    for trial in trials(run):
        first.setdefault(trial.experiment, trial)
    return [_figure(trial) for trial in first.values() if trial.stays]


def _figure(trial: Trial) -> Figure:
    name = f"pool-states-{trial.experiment.replace(' ', '-')}"
    caption = f"States of the servers in {trial.experiment}, repeat {trial.repeat}, as their agents told them."
    return Figure(name, lambda: states(trial.stays), caption)


def states(stays: Sequence[Stay]) -> Drawing:
    """A bar a server, in the colours of its states."""
    from matplotlib.patches import Patch

    from testbed.report.figures import PAGE, color, drawing, legend_above, style

    servers = sorted({stay.server for stay in stays}, reverse=True)
    shades = {state: color(_SHADES[state]) if state in _SHADES else "0.85" for state in State}
    with style():
        figure = drawing(PAGE, 0.9 + 0.3 * len(servers))
        axes = figure.subplots()
        for place, server in enumerate(servers):
            for state, shade in shades.items():
                bars = [(s.start, s.end - s.start) for s in stays if (s.server, s.state) == (server, state)]
                axes.broken_barh(bars, (place - 0.35, 0.7), facecolors=shade, linewidth=0)
        axes.set(xlabel="pool time (s)", yticks=range(len(servers)), yticklabels=servers, xlim=(0, None))
        seen = {stay.state for stay in stays}
        legend_above(figure, {state.value: Patch(color=shade) for state, shade in shades.items() if state in seen})
    return figure
