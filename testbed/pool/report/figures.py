"""Figures of server pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.measure.stats import Estimate
from testbed.pool.agents.clock import SECOND
from testbed.pool.simulation.sweep import Point
from testbed.report.figures import DASHES, MARKERS, PAGE, color, drawing, entries, legend_above, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def trade_off(curves: Mapping[str, Sequence[Point]]) -> Drawing:
    """Service continuity and mean exposure against the period of the pseudo-random sequence, a line a curve.

    The bars are 95 % intervals over seeds.
    """
    with style():
        figure = drawing(PAGE, 2.7 if len(curves) > 1 else 2.4)
        left, right = figure.subplots(1, 2)
        for index, (label, points) in enumerate(curves.items()):
            seconds = [point.period / SECOND for point in points]
            _curve(left, index, label, seconds, [_percent(point.continuity) for point in points])
            _curve(right, index, label, seconds, [point.exposure for point in points])
        left.set(xlabel="pseudo-random period (s)", ylabel="service continuity (%)", xlim=(0, None))
        right.set(xlabel="pseudo-random period (s)", ylabel="mean exposure (s)", xlim=(0, None), ylim=(0, None))
        if len(curves) > 1:
            legend_above(figure, entries([left, right]))
    return figure


def _curve(axes: Axes, index: int, label: str, x: Sequence[float], values: Sequence[Estimate]) -> None:
    below = [v.value - v.low if v.low is not None else 0.0 for v in values]
    above = [v.high - v.value if v.high is not None else 0.0 for v in values]
    axes.errorbar(
        x,
        [v.value for v in values],
        yerr=[below, above],
        color=color(index),
        linestyle=DASHES[index % len(DASHES)],
        marker=MARKERS[index % len(MARKERS)],
        label=label,
    )


def _percent(share: Estimate) -> Estimate:
    return Estimate(
        share.value * 100,
        None if share.low is None else share.low * 100,
        None if share.high is None else share.high * 100,
        share.n,
    )
