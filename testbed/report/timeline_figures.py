"""Faults and what probes saw meanwhile, on one time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.measure.reader import Sample, Step
from testbed.report.figures import GREY, PAGE, PALETTE, drawing, entries, legend_above, shortened
from testbed.report.history import Change, Course, Stop
from testbed.report.watches import Watch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ANSWER, FAULT, SETUP, LOST = PALETTE[0], PALETTE[1], PALETTE[7], PALETTE[3]
MOST_PANELS, MOST_LANES, MOST_NAMES = 8, 24, 16
MOST_DOTS = 1500
"""Answers of one panel that are drawn one by one; of more, median and range of as many stretches."""
LANE = 0.2
"""Inches."""
_NARROW = 0.004
"""Share of the axis under which a stretch would hardly be seen: it gets a mark as well."""


@dataclass(frozen=True)
class Lane:
    """Injections of the same fault, one after the other."""

    label: str
    courses: Sequence[Course]


@dataclass(frozen=True)
class Scene:
    """All that is drawn."""

    steps: Sequence[Step]
    watches: dict[str, list[Watch]]
    """By who asked whom."""
    lanes: Sequence[Lane]
    stops: Sequence[Stop]
    changes: Sequence[Change]
    end: float
    """Of the run."""

    @property
    def span(self) -> tuple[float, float]:
        """The part of the run in which something is to be seen, with a margin."""
        times = [t for all_of in self.watches.values() for watch in all_of for t in (watch.started, watch.ended)]
        times += [t for lane in self.lanes for course in lane.courses for t in (course.began, course.ended(self.end))]
        times += [t for stop in self.stops for t in (stop.start, stop.end if stop.end is not None else self.end)]
        times += [change.t for change in self.changes]
        first, last = min(times), max(times)
        margin = 0.02 * (last - first) or 0.5
        return max(0.0, first - margin) if first >= 0 else first - margin, last + margin


def lanes(courses: Sequence[Course], end: float) -> list[Lane]:
    """One lane for each fault and subject; where two of them overlap, one more."""
    found: dict[str, list[list[Course]]] = {}
    for course in courses:
        label = f"{course.kind} {course.subject}".strip()
        rows = found.setdefault(label, [])
        free = next((row for row in rows if row[-1].ended(end) <= course.began), None)
        if free is None:
            rows.append([course])
        else:
            free.append(course)
    return [Lane(label, row) for label, rows in found.items() for row in rows]


def timeline(scene: Scene) -> Drawing:
    """Steps on top, below them what each availability probe got, below that a lane for each fault."""
    panels = dict(list(scene.watches.items())[:MOST_PANELS])
    shown = scene.lanes[:MOST_LANES]
    rows = (
        [lane.label for lane in shown]
        + (["wire"] if scene.stops else [])
        + (["links changed"] if scene.changes else [])
    )
    slanted = len(scene.steps) > 5
    head = 0.0 if not scene.steps or len(scene.steps) > MOST_NAMES else 0.5 if slanted else 0.2
    heights = ([head] if head else []) + [0.85] * len(panels) + ([LANE * len(rows) + 0.1] if rows else [])
    figure = drawing(PAGE, 0.75 + sum(heights) + 0.12 * len(panels))
    grid = list(
        figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    )
    span = scene.span
    if head:
        _names(grid[0], scene.steps, span, slanted=slanted)
    for axes in grid[1:] if head else grid:
        for step in scene.steps:
            axes.axvspan(step.start, step.end, color=GREY, alpha=0.12, linewidth=0)
    for axes, (label, all_of) in zip(grid[1 if head else 0 :], panels.items(), strict=False):
        _answers(axes, label, all_of, span)
    if rows:
        _lanes(grid[-1], shown, rows, scene, span)
    grid[-1].set(xlabel="time since the run's start (s)", xlim=span)
    legend_above(figure, entries(grid))
    return figure


def _names(axes: Axes, steps: Sequence[Step], span: tuple[float, float], *, slanted: bool) -> None:
    axes.set_axis_off()
    axes.set_ylim(0, 1)
    for step in steps:
        if step.end < span[0] or step.start > span[1]:
            continue
        start = max(step.start, span[0])
        middle = (start + min(step.end, span[1])) / 2
        axes.text(
            start if slanted else middle,
            0,
            shortened(step.name),
            fontsize=6,
            color=GREY,
            rotation=30 if slanted else 0,
            ha="left" if slanted else "center",
            va="bottom",
            clip_on=False,
        )


def _answers(axes: Axes, label: str, all_of: Sequence[Watch], span: tuple[float, float]) -> None:
    samples = [sample for watch in all_of for sample in watch.samples]
    draw_times(axes, samples, ANSWER, "answer", "no answer")
    gaps = [gap for watch in all_of for gap in watch.gaps]
    _spans(axes, [gap.possible for gap in gaps], 0.18, "outage: possible")
    _spans(axes, [gap.certain for gap in gaps if gap.certain[1] > gap.certain[0]], 0.3, "outage: certain")
    lost = sum(watch.lost for watch in all_of)
    good = f"{100 * (1 - lost / len(samples)):.4g} % of {len(samples)} answered" if samples else "nothing was asked"
    how = " and ".join(sorted({watch.by for watch in all_of if watch.by}))
    who = shortened(label.replace(">", " > ", 1), 50)
    axes.set_title(f"{who}{f' ({how})' if how else ''}: {good}", loc="left", fontsize=7, pad=2)
    axes.set_ylabel("answer (ms)", fontsize=7)


def _spans(axes: Axes, spans: Sequence[tuple[float, float]], alpha: float, label: str) -> None:
    """Shade these stretches of time from top to bottom; one thing to draw, however many they are."""
    if spans:
        ranges = [(first, last - first) for first, last in spans]
        across = axes.get_xaxis_transform()
        axes.broken_barh(ranges, (0, 1), transform=across, color=LOST, alpha=alpha, linewidth=0, label=label)


def draw_times(
    axes: Axes, samples: Sequence[Sample], color: str, label: str, lost_label: str, scale: float = 1e3
) -> None:
    """Times of answers as dots, and a stroke at the bottom for each that there is not. ``scale``: from the value."""
    t = np.array([sample.t for sample in samples], dtype=float)
    values = np.array([sample.value for sample in samples], dtype=float) * scale
    good = np.isfinite(values)
    if good.sum() <= MOST_DOTS:
        axes.plot(t[good], values[good], ".", color=color, markersize=2, label=label)
    else:
        _stretches(axes, t[good], values[good], color, label)
    if not good.all():
        missing = t[~good]
        if len(missing) > MOST_DOTS:
            missing = np.unique(np.round(missing, 1))[:: 1 + len(missing) // (10 * MOST_DOTS)]
        across = axes.get_xaxis_transform()
        axes.plot(
            missing,
            np.full(len(missing), 0.05),
            "|",
            transform=across,
            color=LOST,
            markersize=6,
            markeredgewidth=0.8,
            label=lost_label,
        )
    positive = values[good & (values > 0)]
    if len(positive) and positive.max() > 20 * np.median(positive):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.08 * positive.max() if len(positive) else 1)


def _stretches(axes: Axes, t: np.ndarray, values: np.ndarray, color: str, label: str) -> None:
    parts = [part for part in np.array_split(np.argsort(t, kind="stable"), MOST_DOTS // 3) if len(part)]
    middle = [float(np.median(t[part])) for part in parts]
    low, high = [float(values[part].min()) for part in parts], [float(values[part].max()) for part in parts]
    axes.fill_between(middle, low, high, color=color, alpha=0.25, linewidth=0)
    axes.plot(middle, [float(np.median(values[part])) for part in parts], color=color, linewidth=0.8, label=label)


def _lanes(axes: Axes, shown: Sequence[Lane], rows: Sequence[str], scene: Scene, span: tuple[float, float]) -> None:
    narrow = _NARROW * (span[1] - span[0])
    for place, lane in enumerate(shown):
        _lane(axes, place, lane.courses, scene.end, narrow)
    place = len(shown)
    if scene.stops:
        for stop in scene.stops:
            end = stop.end if stop.end is not None else scene.end
            axes.barh(place, end - stop.start, left=stop.start, height=0.6, color=LOST, label="wire is dead")
            axes.plot([stop.start], [place], "X", color=LOST, markersize=4.5, label="wire died")
            if stop.end is not None:
                axes.plot([stop.end], [place], "^", color=PALETTE[2], markersize=4.5, label="wire is back")
        place += 1
    if scene.changes:
        t = [change.t for change in scene.changes]
        axes.plot(t, [place] * len(t), "d", color=PALETTE[5], markersize=4, label="link changed")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [shortened(row, 34) for row in rows], fontsize=6.5)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


def _lane(axes: Axes, place: int, courses: Sequence[Course], end: float, narrow: float) -> None:
    """One thing to draw for all of a kind, for there may be hundreds."""
    bar, setup, holds = (place - 0.3, 0.6), [], []
    marks: dict[str, list[float]] = {"failed": [], "narrow": [], "open": [], "not_healed": []}
    for course in courses:
        start, last = course.began, course.ended(end)
        took = course.verified if course.verified is not None else course.failed
        took = min(max(took if took is not None else start, start), last)
        setup.append((start, took - start))
        if course.failed is not None:
            marks["failed"].append(course.failed)
        else:
            holds.append((took, last - took))
            if last - start < narrow:
                marks["narrow"].append(start)
        if course.healed is None and math.isfinite(last):
            marks["open"].append(last)
        marks["not_healed"].extend(t for t, _ in course.not_healed)
    axes.broken_barh(setup, bar, facecolor=SETUP, edgecolor=GREY, linewidth=0.3, label="injected")
    if holds:
        axes.broken_barh(holds, bar, facecolor=FAULT, linewidth=0, label="verified: it holds")
    _marks(axes, marks["failed"], place, "X", color="black", markersize=5, label="did not take")
    _marks(axes, marks["narrow"], place, "|", color=FAULT, markersize=7, markeredgewidth=1.5)
    _marks(axes, marks["open"], place, ">", color="black", markersize=4, label="not healed in the run")
    _marks(axes, marks["not_healed"], place, "P", color=LOST, markersize=5, label="healing failed")


def _marks(axes: Axes, times: Sequence[float], place: int, marker: str, **how: Any) -> None:
    if times:
        axes.plot(times, [place] * len(times), marker, **how)
