"""What probes measured, over time and as distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.measure.reader import Sample
from testbed.measure.stats import Time, ecdf
from testbed.report.compare_figures import OUTSIDE
from testbed.report.figures import DASHES, GREY, PAGE, PALETTE, drawing, entries, legend_above, shortened
from testbed.report.timeline_figures import LOST, draw_times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
else:
    Drawing = object

__all__ = ["Drawing", "MOST_CURVES", "MOST_PANELS", "Panel", "over_time"]

MOST_PANELS, MOST_CURVES = 6, 6
_COLORS = [color for color in PALETTE if color not in (LOST, PALETTE[7])]
"""Without that of what was lost, and without yellow, which hardly shows on white."""


@dataclass(frozen=True)
class Panel:
    """One pair of nodes: what was measured under each of the conditions."""

    label: str
    conditions: dict[str, list[Sample]]


def over_time(panels: Sequence[Panel], axis: str, scale: float) -> Drawing:
    """A row for each pair: on the left every value at its time, on the right the distribution by conditions."""
    shown = list(panels)[:MOST_PANELS]
    every = list(dict.fromkeys(what for panel in shown for what in list(panel.conditions)[:MOST_CURVES]))
    named = [what for what in every if what != OUTSIDE]
    looks: dict[str, tuple[str, Any]] = {
        what: (_COLORS[i % len(_COLORS)], DASHES[i % len(DASHES)]) for i, what in enumerate(named)
    }
    looks[OUTSIDE] = (GREY, ":")
    figure = drawing(PAGE, 0.65 + 1.5 * len(shown))
    grid = figure.subplots(len(shown), 2, squeeze=False, gridspec_kw={"width_ratios": [2, 1]})
    for (left, right), panel in zip(grid, shown, strict=True):
        _values(left, panel, looks, scale)
        for what, samples in list(panel.conditions.items())[:MOST_CURVES]:
            _curve(right, samples, scale, *looks[what])
        left.set_title(shortened(panel.label.replace(">", " > ", 1), 60), loc="left", fontsize=7)
        left.set_ylabel(axis)
        if left.get_yscale() == "log":
            right.set_xscale("log")
        else:
            right.set_xlim(0, left.get_ylim()[1])
        right.set(ylim=(0, 1.01), ylabel="share within")
    grid[-1][0].set_xlabel("time since the run's start (s)")
    grid[-1][1].set_xlabel(axis)
    legend_above(figure, {shortened(label, 60): handle for label, handle in entries(grid[:, 0]).items()})
    return figure


def _values(axes: Axes, panel: Panel, looks: Mapping[str, tuple[str, object]], scale: float) -> None:
    """All values in one go would have one colour; so condition by condition, and the axis for all of them."""
    tops = []
    logarithmic = False
    for what, samples in panel.conditions.items():
        color = looks[what][0] if what in looks else GREY
        draw_times(axes, samples, color, what, "no answer", scale)
        logarithmic = logarithmic or axes.get_yscale() == "log"
        tops += [sample.value * scale for sample in samples if math.isfinite(sample.value)]
    axes.set_yscale("log" if logarithmic and any(top > 0 for top in tops) else "linear")
    if axes.get_yscale() == "linear":
        axes.set_ylim(min(0.0, *tops) if tops else 0, 1.08 * max(tops, default=0.0) or 1)
    else:
        axes.autoscale(axis="y")


def _curve(axes: Axes, samples: Sequence[Sample], scale: float, color: str, dash: object) -> None:
    times = [
        Time(sample.value * scale) if math.isfinite(sample.value) else Time(math.inf, observed=False)
        for sample in samples
    ]
    t, share = ecdf(times)
    if len(t):
        axes.plot([t[0], *t], [0.0, *share], drawstyle="steps-post", color=color, linestyle=dash)
