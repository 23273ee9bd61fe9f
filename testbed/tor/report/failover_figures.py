"""Figures of the failover experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from testbed.measure.reader import Sample
from testbed.measure.stats import ecdf, unwrap
from testbed.report.figures import (
    COLUMN,
    DASHES,
    GREY,
    PAGE,
    PALETTE,
    color,
    drawing,
    entries,
    legend_above,
    ordered_colors,
    shortened,
)
from testbed.report.numbers import natural
from testbed.tor.report.recovery import Failover, Recovery, Repeats
from testbed.tor.report.trials import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_BARS = 60
"""Clients of one condition that are drawn in ``courses``; of more, every second, third and so on."""
STALL = PALETTE[3]
ACTIVE = PALETTE[4]


def recovery_curves(found: Sequence[Repeats]) -> Drawing:
    """Share of affected clients that were served again within a time; a panel a signal, a curve a number of instances.

    The axis is logarithmic: the modes lie a factor of thirty apart.
    """
    panels_of = grouped(found, lambda condition: condition.manner)
    numbers = sorted({condition.n for condition in found})
    colors = dict(zip(numbers, ordered_colors(len(numbers)), strict=True))
    figure = drawing(PAGE if len(panels_of) > 1 else COLUMN + 1, 2.6)
    panels = figure.subplots(1, len(panels_of), sharex=True, sharey=True, squeeze=False)[0]
    longest = max((time.seconds for c in found for time in c.pool if np.isfinite(time.seconds)), default=10.0)
    for (title, conditions), axes in zip(panels_of.items(), panels, strict=True):
        for condition in conditions:
            t, share = ecdf(condition.pool)
            axes.plot(
                [0.1, *np.maximum(t, 0.1), longest * 1.1],
                [0.0, *share, share[-1] if len(share) else 0.0],
                drawstyle="steps-post",
                color=colors[condition.n],
                linestyle=DASHES[numbers.index(condition.n) % len(DASHES)],
                label=f"N={condition.n}",
            )
        for stalls in range(1, 4):
            axes.axvline(31.5 * stalls, color=GREY, linewidth=0.5, linestyle=":")
        axes.set_xscale("log")
        axes.set(title=title, xlabel="time from the instance's end (s)", xlim=(0.1, longest * 1.1), ylim=(0, 1.01))
        axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    panels[0].set_ylabel("affected clients served again")
    shown = entries(panels)
    legend_above(figure, {label: shown[label] for label in sorted(shown, key=natural)})
    return figure


def courses(found: Sequence[Repeats]) -> Drawing:
    """What each affected client did until it was served again: a bar a client, from its own log."""
    rows = [(condition, _thinned(condition.affected)) for condition in found if condition.affected]
    heights = [max(len(clients), 4) for _, clients in rows]
    figure = drawing(PAGE, 0.7 + 0.42 * len(rows) + 0.052 * sum(heights))
    grid = figure.subplots(len(rows), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    known = [time.seconds for condition, _ in rows for time in condition.pool if time.observed]
    end = 1.15 * max(known or [time.seconds for condition, _ in rows for time in condition.pool])
    for (condition, clients), axes in zip(rows, grid, strict=True):
        for place, recovery in enumerate(clients):
            _course(axes, place, recovery, end)
        axes.set_ylim(-0.7, max(len(clients), 4) - 0.3)
        axes.set_yticks([])
        axes.set_ylabel(condition.name.replace(", ", "\n"), rotation=0, ha="right", va="center", fontsize=7)
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
    grid[-1].set(xlabel="time from the instance's end (s)", xlim=(0, end))
    legend_above(figure, entries(grid))
    return figure


def _thinned(recoveries: Sequence[Recovery]) -> list[Recovery]:
    ordered = sorted(recoveries, key=lambda recovery: recovery.recovered.seconds)
    return ordered[:: -(-len(ordered) // MOST_BARS)]


def _course(axes: Axes, place: int, recovery: Recovery, most: float) -> None:
    end = min(recovery.recovered.seconds, most)
    axes.barh(place, end, height=0.72, color=ACTIVE, label="until served again")
    for stall in recovery.stalls:
        length = max(0.0, min(stall.seconds, end - stall.t))
        axes.barh(place, length, left=stall.t, height=0.72, color=STALL, label="stalled")
    for what, marker, label in (("nack", "|", "refused"), ("useless", "x", "same descriptor again")):
        times = [mark.t for mark in recovery.marks if mark.what == what and mark.t < end]
        axes.plot(times, [place] * len(times), marker, color="black", markersize=3, markeredgewidth=0.7, label=label)
    if not recovery.recovered.observed:
        axes.plot([0.99 * end], [place], ">", color="black", markersize=3, label="not served again")


def taken_over(found: Sequence[Failover], counters: dict[str, list[Sample]]) -> Drawing:
    """Cumulative data that each instance sent, from the start of the step on; the instance's end as a line."""
    figure = drawing(PAGE, 0.6 + 1.35 * -(-len(found) // 3))
    rows = -(-len(found) // 3)
    grid = figure.subplots(rows, min(3, len(found)), sharey=True, squeeze=False)
    names = sorted({name for failover in found for name in failover.trial.nodes}, key=natural)
    for failover, axes in zip(found, grid.flat, strict=False):
        _sent(axes, failover, counters, names)
    for axes in list(grid.flat)[len(found) :]:
        axes.set_axis_off()
    grid[0][0].set_ylim(0, None)  # only now: the panels share it, and what is drawn later would be cut
    for row in grid:
        row[0].set_ylabel("sent (MiB)")
    for column in grid.T:
        [axes for axes in column if axes.axison][-1].set_xlabel("time from the instance's end (s)")
    shown = entries(grid.flat)
    legend_above(figure, {label: shown[label] for label in sorted(shown, key=natural)})
    return figure


def _sent(axes: Axes, failover: Failover, counters: dict[str, list[Sample]], names: Sequence[str]) -> None:
    step = failover.trial.step
    for name in failover.trial.nodes:
        samples = counters.get(name, [])
        if not samples:
            continue
        t = np.array([sample.t for sample in samples])
        edges = np.array([step.start, *t[(t > step.start) & (t < step.end)], step.end])
        sent = np.interp(edges, t, unwrap([sample.value for sample in samples]))
        index = names.index(name)
        axes.plot(
            edges - failover.ended,
            (sent - sent[0]) / 2**20,
            color=color(index),
            linestyle=DASHES[index % len(DASHES)],
            label=shortened(name),
        )
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_title(
        f"N={failover.trial.n}, {failover.trial.word('signal')}: {shortened(failover.victim)} ends", fontsize=7
    )
