"""Figures of outages: one row a trial, and one trial in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.report.figures import (
    GREY,
    PAGE,
    PALETTE,
    drawing,
    entries,
    legend_above,
    shortened,
)
from testbed.report.numbers import natural
from testbed.tor.report.holes import Hole, Holes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_CLIENTS = 15
"""Clients that a course shows."""
DARK, LIGHT = PALETTE[3], PALETTE[1]
_LONG = 2.0
"""Seconds from which on a request is drawn as a wait."""


def outage_bars(found: Sequence[Holes]) -> Drawing:
    """A row a trial: nobody was served (dark), not everybody yet (light), each client's first success (dots)."""
    rows = [(condition, hole) for condition in found for hole in condition.repeats]
    figure = drawing(PAGE, 0.9 + 0.3 * len(rows))
    axes = figure.subplots()
    for place, (_, hole) in enumerate(reversed(rows)):
        _outage(axes, place, hole)
    names = [f"{condition.name} r{hole.trial.repeat}" for condition, hole in reversed(rows)]
    axes.set_yticks(range(len(rows)), [shortened(name, 34) for name in names])
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="time from the instance's end (s)", ylim=(-0.6, len(rows) - 0.4))
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    legend_above(figure, entries([axes]))
    return figure


def _outage(axes: Axes, place: int, hole: Hole) -> None:
    end = hole.trial.step.end - hole.ended
    last, first = hole.service.last, hole.service.first
    begun = 0.0 if last is None else last
    dark = end if first is None else first
    firsts = [gap.first for gap in hole.clients]
    slowest = max((end if at is None else at for at in firsts), default=dark)
    axes.barh(place, dark - begun, left=begun, height=0.6, color=DARK, label="nobody served")
    axes.barh(place, max(0.0, slowest - dark), left=dark, height=0.6, color=LIGHT, label="not everybody served yet")
    known = [at for at in firsts if at is not None]
    axes.plot(known, [place] * len(known), "o", color="black", markersize=2, label="first success of a client")
    if hole.fresh.first is not None:
        axes.plot([hole.fresh.first], [place], "D", color="white", markeredgecolor="black", label="of a fresh client")
    axes.plot([hole.republish], [place], "|", color="black", markersize=11, label="others made to publish")


def course(hole: Hole) -> Drawing:
    """One trial: who held which HSDir, what fresh clients and the others met."""
    hsdirs = sorted({reading.hsdir for reading in hole.readings}, key=natural, reverse=True)
    clients = sorted({download.client for download in hole.trial.downloads}, key=natural)[:MOST_CLIENTS]
    heights = [max(1, len(hsdirs)) * 1.2, 2.0, max(1, len(clients))]
    figure = drawing(PAGE, 0.9 + 0.16 * sum(heights))
    above, middle, below = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": heights})
    _readings(above, hole, hsdirs)
    _fresh(middle, hole)
    _clients(below, hole, clients)
    for axes in (above, middle, below):
        axes.grid(visible=False)
        axes.axvline(0, color="black", linewidth=0.9)
        axes.axvline(hole.republish, color="black", linewidth=0.9, linestyle="--")
        if hole.published is not None:
            axes.axvline(hole.published, color="black", linewidth=0.9, linestyle=":")
    start, end = (at - hole.ended for at in (hole.trial.step.start, hole.trial.step.end))
    below.set(xlabel="time from the instance's end (s)", xlim=(start, end))
    shown = entries([above, middle, below])
    legend_above(figure, {label: shown[label] for label in sorted(shown, key=natural)})
    return figure


def _readings(axes: Axes, hole: Hole, hsdirs: Sequence[str]) -> None:
    for reading in hole.readings:
        name = reading.instance or "none"
        axes.barh(
            hsdirs.index(reading.hsdir),
            reading.end - reading.start,
            left=reading.start - hole.ended,
            height=0.8,
            color=_shade(hole, reading.instance),
            edgecolor="white",
            linewidth=0.4,
            label=shortened(name),
        )
    axes.set_yticks(range(len(hsdirs)), list(map(shortened, hsdirs)), fontsize=6)
    axes.set_ylim(-0.6, len(hsdirs) - 0.4)
    axes.set_ylabel("HSDirs")


def _fresh(axes: Axes, hole: Hole) -> None:
    for item in hole.trial.fresh:
        started, ended = item.started - hole.ended, item.ended - hole.ended
        if item.ok and item.last_byte is not None:
            at = item.last_byte - hole.ended
            axes.plot([started, at], [0, 0], color=GREY, linewidth=0.4)
            axes.plot([at], [0], "o", color=_shade(hole, item.instance), markersize=2.5, label=shortened(item.instance))
        else:
            axes.plot([started, ended], [-1, -1], color=DARK, linewidth=0.6, alpha=0.6)
            if not item.cut:
                axes.plot([ended], [-1], "x", color=DARK, markersize=3, markeredgewidth=0.7, label="failed")
    axes.set_yticks([0, -1], ["served", "not"], fontsize=6)
    axes.set_ylim(-1.6, 0.6)
    axes.set_ylabel("fresh")


def _clients(axes: Axes, hole: Hole, clients: Sequence[str]) -> None:
    for download in hole.trial.downloads:
        if download.client not in clients:
            continue
        place = len(clients) - 1 - clients.index(download.client)
        started, ended = download.started - hole.ended, download.ended - hole.ended
        if ended - started > _LONG:
            axes.plot([started, ended], [place, place], color=DARK, linewidth=1.1, alpha=0.6, label="waiting")
        if download.ok:
            shade = _shade(hole, download.instance)
            axes.plot([ended], [place], "o", color=shade, markersize=2, label=shortened(download.instance))
        elif download.failed:
            axes.plot([ended], [place], "x", color=DARK, markersize=2.5, markeredgewidth=0.7, label="failed")
    axes.set_yticks([])
    axes.set_ylim(-0.7, len(clients) - 0.3)
    axes.set_ylabel("clients")


def _shade(hole: Hole, instance: str) -> str:
    """The colour of an instance: black for the one that ended."""
    if instance == hole.victim:
        return "black"
    if instance not in hole.trial.nodes:
        return "#dddddd"
    palette = [shade for shade in PALETTE if shade not in (DARK, "#000000")]
    names = [name for name in hole.trial.nodes if name != hole.victim]
    return palette[names.index(instance) % len(palette)]
