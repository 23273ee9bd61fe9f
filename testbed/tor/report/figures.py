"""Figures of the same-key onion experiment, over all repeats of each condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from testbed.measure.stats import Estimate, ecdf, ranked_share_intervals, share_intervals, shares
from testbed.report.figures import (
    COLUMN,
    DASHES,
    GREY,
    MARKERS,
    PAGE,
    color,
    drawing,
    entries,
    legend_above,
    ordered_colors,
    shortened,
)
from testbed.report.numbers import natural
from testbed.tor.report.data import Condition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def distribution(found: Sequence[Condition]) -> Drawing:
    """Share of downloads finished within a time, one curve each N, one panel each way to publish."""
    ways = list(dict.fromkeys(condition.publish for condition in found))
    numbers = sorted({condition.n for condition in found})
    colors = dict(zip(numbers, ordered_colors(len(numbers)), strict=True))
    figure = drawing(PAGE if len(ways) > 1 else COLUMN + 1, 2.6)
    panels = figure.subplots(1, len(ways), sharey=True, sharex=True, squeeze=False)[0]
    longest = max((time.seconds for c in found for r in c.times for time in r if time.observed), default=1.0)
    for way, axes in zip(ways, panels, strict=True):
        for condition in with_single(found, way):
            t, share = ecdf([time for repeat in condition.times for time in repeat])
            axes.plot(
                [0.0, *t, longest * 1.03],
                [0.0, *share, share[-1] if len(share) else 0.0],
                drawstyle="steps-post",
                color=colors[condition.n],
                linestyle=DASHES[numbers.index(condition.n) % len(DASHES)],
                label=f"N={condition.n}",
            )
        axes.set(
            title=shortened(way), xlabel="download time to the last byte (s)", xlim=(0, longest * 1.03), ylim=(0, 1.01)
        )
    panels[0].set_ylabel("share of downloads finished")
    shown = entries(panels)
    legend_above(figure, {label: shown[label] for label in sorted(shown, key=natural)})
    return figure


def by_number(
    found: Sequence[Condition], value: Callable[[Condition], Estimate], label: str, *, best: float | None = None
) -> Drawing:
    """A figure with its interval against N, one line each way to publish; ``best`` is drawn as a thin line."""
    ways = list(dict.fromkeys(condition.publish for condition in found))
    numbers = sorted({condition.n for condition in found})
    figure = drawing(COLUMN + 0.6, 2.6)
    axes = figure.subplots()
    for index, way in enumerate(ways):
        shift = (index - (len(ways) - 1) / 2) * 0.12
        points = [(numbers.index(c.n) + shift, value(c)) for c in with_single(found, way)]
        points = [(x, estimate) for x, estimate in points if np.isfinite(estimate.value)]
        axes.errorbar(
            [x for x, _ in points],
            [estimate.value for _, estimate in points],
            yerr=_bars([estimate for _, estimate in points]),
            color=way_color(index),
            marker=MARKERS[index % len(MARKERS)],
            linestyle=DASHES[index % len(DASHES)],
            elinewidth=0.9,
            label=shortened(way),
        )
    if best is not None:
        axes.axhline(best, color=GREY, linewidth=0.7)
    axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    axes.set(xlabel="instances N", ylabel=label, ylim=(0, 1.05 if best == 1 else None))
    axes.set_xlim(-0.4, len(numbers) - 0.6)
    legend_above(figure, entries([axes]))
    return figure


def shares_by_instance(found: Sequence[Condition]) -> Drawing:
    """Share of each instance with its interval over repeats, one panel each N; the even share as a line."""

    def estimates(condition: Condition) -> list[Estimate]:
        by_name = share_intervals(condition.amounts)
        return [by_name.get(name, Estimate(0.0)) for name in condition.instances]

    def dots(condition: Condition) -> list[list[float]]:
        parts = [shares(repeat) for repeat in condition.amounts]
        return [[part.get(name, 0.0) for name in condition.instances] for part in parts]

    figure, panels = _share_panels(found, estimates, dots)
    for n, axes in panels.items():
        names = next(condition.instances for condition in found if condition.n == n)
        axes.set_xticks(range(n), list(map(shortened, names)), rotation=35 if n > 3 or max(map(len, names)) > 8 else 0)
    return figure


def shares_by_rank(found: Sequence[Condition], published: Mapping[int, Sequence[float]]) -> Drawing:
    """As ``shares_by_instance``, but from the largest to the smallest of each repeat, with the published as marks."""

    def dots(condition: Condition) -> list[list[float]]:
        return [sorted(shares(repeat).values(), reverse=True) for repeat in condition.amounts]

    figure, panels = _share_panels(found, lambda condition: ranked_share_intervals(condition.amounts), dots)
    for n, axes in panels.items():
        axes.set_xticks(range(n), ["largest", "2nd", "3rd", *(f"{rank}th" for rank in range(4, n + 1))][:n])
        if n in published:
            values = [100 * share for share in published[n]]
            axes.plot(range(n), values, "D", color="black", markerfacecolor="none", markersize=5, label="published")
    _share_legend(figure, panels)
    return figure


def _share_panels(
    found: Sequence[Condition],
    estimates: Callable[[Condition], list[Estimate]],
    dots: Callable[[Condition], list[list[float]]],
) -> tuple[Drawing, dict[int, Axes]]:
    numbers = sorted({condition.n for condition in found})
    ways = list(dict.fromkeys(condition.publish for condition in found))
    figure = drawing(min(PAGE, 2 + 0.55 * sum(numbers)), 2.5)
    ratios = [n + 0.8 for n in numbers]
    row = figure.subplots(1, len(numbers), sharey=True, squeeze=False, gridspec_kw={"width_ratios": ratios})[0]
    panels = dict(zip(numbers, row, strict=True))
    width = 0.8 / len(ways)
    for condition in found:
        index, axes = ways.index(condition.publish), panels[condition.n]
        x = np.arange(condition.n) + (index - (len(ways) - 1) / 2) * width
        values = estimates(condition)
        axes.bar(
            x,
            [100 * value.value for value in values],
            width * 0.92,
            color=way_color(index),
            alpha=0.75,
            label=shortened(condition.publish),
            yerr=_bars(values, 100),
            error_kw={"elinewidth": 0.9, "capsize": 2},
        )
        for repeat in dots(condition):
            axes.plot(x, [100 * part for part in repeat], ".", color="black", markersize=2.5, alpha=0.7)
    for n, axes in panels.items():
        axes.axhline(100 / n, color=GREY, linewidth=0.8, linestyle="--")
        axes.set_title(f"N={n}")
    row[0].set_ylim(0, None)
    row[0].set_ylabel("share of the data sent (%)")
    _share_legend(figure, panels)
    return figure, panels


def _share_legend(figure: Drawing, panels: Mapping[int, Axes]) -> None:
    for old in list(figure.legends):
        old.remove()
    legend_above(figure, entries(panels.values()))


def way_color(index: int) -> str:
    """The colour of a way to publish, apart from those of the first instances."""
    return color((3, 0, 2, 5, 1, 4)[index % 6])


def with_single(found: Sequence[Condition], way: str) -> list[Condition]:
    """The conditions of one way to publish; one instance has nobody to publish with, so it stands for every way."""
    mine = [condition for condition in found if condition.publish == way]
    if any(condition.n == 1 for condition in mine):
        return mine
    return [*[condition for condition in found if condition.n == 1][:1], *mine]


def _bars(estimates: Sequence[Estimate], factor: float = 1) -> list[list[float]]:
    """Lengths of error bars below and above; none where there is no interval, or it has no end."""

    def length(end: float | None, value: float) -> float:
        return factor * abs(end - value) if end is not None and np.isfinite(end) else float("nan")

    return [[length(e.low, e.value) for e in estimates], [length(e.high, e.value) for e in estimates]]
