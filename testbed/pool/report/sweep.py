"""Report section of ``pool_sweep``: continuity and exposure against the period, beside what the paper says."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from testbed.measure.stats import Estimate
from testbed.pool.agents.clock import SECOND
from testbed.pool.simulation.sweep import PUBLISHED_SHARE, Point
from testbed.report.blocks import Block, Figure, Section, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader

EVENT = "pool_sweep"
"""In a run: one pool and period, over all seeds."""
POOLS = {"timer only": 0.0, "with detection": PUBLISHED_SHARE}
"""The two pools, by the share of 1 bits in their detection sequence."""


def sections(run: RunReader) -> list[Section]:
    """One section for runs of ``pool_sweep``; none for any other run."""
    found = [event.detail for event in run.events(EVENT)]
    curves: dict[str, list[Point]] = {}
    for detail in found:
        curves.setdefault(str(detail["pool"]), []).append(_point(detail))
    if not curves:
        return []

    def draw() -> Drawing:
        from testbed.pool.report.figures import trade_off

        return trade_off(curves)

    seeds, hours = len(found[0]["seeds"]), found[0]["hours"]
    about = f"In virtual time, {seeds} seeds of {hours} h each."
    blocks: list[Block] = [
        Text(
            f"{about} Of the paper's two curves we have no figures, only that both rise with the period, and not "
            "whether its pool had a detection sequence."
        ),
        *[Text(_verdict(name, points)) for name, points in curves.items() if len(points) > 1],
        Table(
            ("pool", "period", "published", "continuity", "spread", "exposure", "spread", "held"),
            [(name, *_row(points, index)) for name, points in curves.items() for index in range(len(points))],
            caption="published: what the paper says of both figures, beside those of the period before. Continuity in "
            "per cent, mean exposure in seconds; spread: half the 95 % interval over the seeds. held: per cent of time "
            "in which a server was suspended, that is served on because none was ready",
            text=(0, 2),
            console=True,
        ),
        Figure(
            "pool-sweep", draw, f"Service continuity and mean exposure. {about} Bars are 95 % intervals over seeds."
        ),
    ]
    return [Section("Rotating pool: the sweep", blocks)]


def _point(detail: dict[str, Any]) -> Point:
    figures = {name: Estimate(**detail[name]) for name in ("continuity", "exposure", "suspended")}
    return Point(int(detail["period"]), migrations=int(detail["migrations"]), **figures)


def _verdict(name: str, points: Sequence[Point]) -> str:
    """Whether both figures rise at every step, and where they do not."""
    said = []
    for what in ("continuity", "exposure"):
        falls = [
            f"{before.period // SECOND} to {after.period // SECOND} s"
            for before, after in pairwise(points)
            if getattr(after, what).value <= getattr(before, what).value
        ]
        said.append(f"{what} " + (f"does not rise from {', '.join(falls)}" if falls else "rises at every step"))
    return f"{name}: {'; '.join(said)}."


def _row(points: Sequence[Point], index: int) -> tuple[str, ...]:
    point = points[index]
    return (
        f"{point.period // SECOND} s",
        "rises" if index else "-",
        f"{point.continuity.value * 100:.2f}",
        _spread(point.continuity, 100, 2),
        f"{point.exposure.value:.1f}",
        _spread(point.exposure, 1, 1),
        f"{point.suspended.value * 100:.1f}",
    )


def _spread(estimate: Estimate, factor: float, digits: int) -> str:
    """Half the interval; a dash of one seed, which has none."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"\u00b1 {(estimate.high - estimate.low) / 2 * factor:.{digits}f}"
