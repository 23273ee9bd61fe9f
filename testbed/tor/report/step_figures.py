"""Figures of the same-key onion experiment in the course of time, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.measure.stats import unwrap
from testbed.report.figures import DASHES, GREY, PAGE, color, drawing, entries, legend_above, shortened
from testbed.report.numbers import natural
from testbed.tor.report.data import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_REPEATS = 4
"""Repeats that are drawn of the cumulative curves; more would make a poster."""


def cumulative(steps: Sequence[Measured]) -> Drawing:
    """Cumulative bytes of each instance: columns by N, a row each way to publish and repeat."""
    numbers = sorted({step.n for step in steps})
    ways = list(dict.fromkeys(step.publish for step in steps))
    found = {(step.publish, step.step.repeat) for step in steps if step.step.repeat <= MOST_REPEATS}
    rows = sorted(found, key=lambda row: (ways.index(row[0]), row[1]))
    instances = _instances(steps)
    figure = drawing(PAGE, 0.55 + 1.25 * len(rows))
    grid = figure.subplots(len(rows), len(numbers), sharex=True, sharey=True, squeeze=False)
    by_place = {(step.publish, step.step.repeat, step.n): step for step in steps}
    for row, (publish, repeat) in enumerate(rows):
        for column, n in enumerate(numbers):
            axes = grid[row][column]
            step = by_place.get((publish, repeat, n))
            if step is None:
                axes.set_axis_off()
                continue
            _curves(axes, step, instances)
            axes.set_title(
                f"N={n}, {shortened(publish, 14)}" + (f" r{repeat}" if len(rows) > len(ways) else ""), fontsize=7
            )
    # Only now: a limit that is set before the last panel is drawn would cut what comes after it.
    grid[0][0].set(xlim=(0, None), ylim=(0, None))
    _label_edges(grid, "time in the step (s)", "sent (MiB)")
    shown = entries(grid.flat)
    legend_above(figure, {name: shown[name] for name in map(shortened, instances) if name in shown})
    return figure


def _label_edges(grid: Any, x: str, y: str) -> None:
    """Label the first panel of each row and the last of each column, where not every place has one."""
    for row in grid:
        first = next(axes for axes in row if axes.axison)
        first.set_ylabel(y)
        first.yaxis.set_tick_params(labelleft=True)
    for column in grid.T:
        last = [axes for axes in column if axes.axison][-1]
        last.set_xlabel(x)
        last.xaxis.set_tick_params(labelbottom=True)


def _curves(axes: Axes, step: Measured, instances: Sequence[str]) -> None:
    for name in step.instances:
        samples = step.curves.get(name, [])
        if not samples:
            continue
        t = np.array([sample.t for sample in samples])
        sent = unwrap([sample.value for sample in samples])
        edges = np.array([step.step.start, *t[(t > step.step.start) & (t < step.step.end)], step.step.end])
        at = np.interp(edges, t, sent)
        index = instances.index(name)
        axes.plot(
            edges - step.step.start,
            (at - at[0]) / 2**20,
            color=color(index),
            linestyle=DASHES[index % len(DASHES)],
            label=shortened(name),
        )


def hsdir_map(steps: Sequence[Measured]) -> Drawing:
    """Which instance's descriptor each responsible HSDir held, over the whole run."""
    read = [step for step in steps if step.readings]
    hsdirs = sorted({reading.hsdir for step in read for reading in step.readings}, key=natural, reverse=True)
    instances = _instances(read)
    figure = drawing(PAGE, 1.1 + 0.24 * len(hsdirs))
    axes = figure.subplots()
    labelled: set[str] = set()
    for step in read:
        for reading in step.readings:
            names = reading.instances or ["none"]
            height = 0.78 / len(names)
            for place, name in enumerate(names):  # a mixed descriptor is a bar of several colours
                axes.barh(
                    hsdirs.index(reading.hsdir) + (place - (len(names) - 1) / 2) * height,
                    reading.end - reading.start,
                    left=reading.start,
                    height=height,
                    linewidth=0.4 if len(names) == 1 else 0,
                    edgecolor="white" if reading.instance else GREY,
                    facecolor=color(instances.index(name)) if name in instances else "white",
                    hatch=None if reading.instance else "////",
                    label="_" if name in labelled else shortened(name),
                )
                labelled.add(name)
        axes.axvline(step.step.start, color=GREY, linewidth=0.5)
        axes.annotate(
            _short(step, len(read)),
            (step.step.start, len(hsdirs) - 0.5),
            xytext=(1, 2),
            textcoords="offset points",
            fontsize=5.5,
            color=GREY,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(hsdirs)), list(map(shortened, hsdirs)))
    axes.set(xlabel="time since the run's start (s)", ylim=(-0.5, len(hsdirs) - 0.5))
    axes.set_xlim(read[0].step.start, max(step.step.end for step in read))
    axes.grid(visible=False)
    shown = entries([axes])
    legend_above(figure, {label: shown[label] for label in sorted(shown, key=natural)})
    return figure


def _short(step: Measured, among: int) -> str:
    """As much of what a step was as fits above it."""
    if among > 30:
        return str(step.n)
    return f"N={step.n}\n{step.publish[:14] if among <= 8 else step.publish[:6]}"


def _instances(steps: Sequence[Measured]) -> list[str]:
    return sorted({name for step in steps for name in step.instances}, key=natural)
