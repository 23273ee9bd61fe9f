"""The report's section on connections that were moved: what clients noticed, and what the moves took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.measure.stats import median
from testbed.report.blocks import Block, Figure, Section, Table, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader

EVENT = "pool_migration"
"""Kind of the event that holds what clients of one sort saw; with ``_move`` after it, of one move."""


@dataclass(frozen=True)
class Crowd:
    """Clients of one sort in one node, all repeats."""

    load: str
    node: str
    connections: int
    requests: int
    bytes: int
    gaps: Sequence[float]
    """Longest pause of each connection, seconds."""
    lost: int
    """Connections that ended, and responses with wrong content."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.load}, {self.node}"


def crowds(run: RunReader) -> list[Crowd]:
    """What the run has of each sort of clients."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in run.events(EVENT):
        found.setdefault((str(event.detail["load"]), event.node), []).append(event.detail)
    return [
        Crowd(
            load,
            node,
            sum(row["connections"] for row in rows),
            sum(row["requests"] for row in rows),
            sum(row["bytes"] for row in rows),
            [gap for row in rows for gap in row["gaps"]],
            sum(len(row["errors"]) + len(row["wrong"]) for row in rows),
        )
        for (load, node), rows in found.items()
    ]


def sections(run: RunReader) -> list[Section]:
    """One section if the run moved connections."""
    seen = crowds(run)
    if not seen:
        return []
    moves = [event.detail for event in run.events(f"{EVENT}_move")]
    blocks: list[Block] = [
        Text(
            "The longest time for which each connection heard nothing while a response or upload was under way. It "
            "holds the moves and everything else that happened on the way, such as lost packets."
        ),
        clients_table(seen),
        Figure(
            "pool-migration-gaps",
            lambda: gaps(seen),
            "Share of connections whose longest pause was at most so long; one step a connection.",
        ),
    ]
    if moves:
        blocks.append(moves_table(moves))
    return [Section("Connections that moved", blocks)]


def clients_table(seen: Sequence[Crowd]) -> Table:
    """A row for each sort of clients."""
    return Table(
        ("clients", "connections", "requests", "MiB", "median pause, ms", "longest pause, ms", "lost or wrong"),
        [
            (
                crowd.name,
                str(crowd.connections),
                str(crowd.requests),
                f"{crowd.bytes / 2**20:.1f}",
                f"{1000 * median(crowd.gaps):.1f}",
                f"{1000 * max(crowd.gaps, default=0):.1f}",
                str(crowd.lost),
            )
            for crowd in seen
        ],
        caption="What clients saw",
        console=True,
    )


def moves_table(moves: Sequence[dict[str, Any]]) -> Table:
    """All moves in one row, for there may be hundreds."""
    times = [1000 * float(move["seconds"] or 0) for move in moves]
    return Table(
        ("moves", "connections moved", "not moved", "MiB of queues", "median, ms", "longest, ms"),
        [
            (
                str(len(moves)),
                str(sum(int(move["moved"] or 0) for move in moves)),
                str(sum(int(move["failed"] or 0) for move in moves)),
                f"{sum(int(move['bytes'] or 0) for move in moves) / 2**20:.1f}",
                f"{median(times):.1f}",
                f"{max(times):.1f}",
            )
        ],
        caption="What the dispatcher did; times are from its first step until the last connection was at work",
        text=(),
    )


def gaps(seen: Sequence[Crowd]) -> Drawing:
    """Distributions of the longest pauses."""
    from testbed.report.figures import DASHES, PAGE, color, drawing, entries, legend_above

    figure = drawing(PAGE, 2.6)
    axes = figure.subplots()
    for index, crowd in enumerate(seen):
        values = sorted(1000 * gap for gap in crowd.gaps)
        steps = [(number + 1) / len(values) for number in range(len(values))]
        axes.step(
            values, steps, where="post", color=color(index), linestyle=DASHES[index % len(DASHES)], label=crowd.name
        )
    axes.set(xlabel="longest pause of a connection (ms)", ylabel="share of connections", ylim=(0, 1.02), xscale="log")
    legend_above(figure, entries([axes]))
    return figure
