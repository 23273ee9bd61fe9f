"""The section on floods: what users of every network got before, during and after a flood from one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from testbed.edge.measure.experiment import Fetched, fetches
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.figures import PAGE, color, drawing, entries, legend_above
from testbed.report.numbers import NONE, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader

PHASES = ("before", "during", "after")
NOTE = (
    "Published (DOI 10.3969/j.issn.1007-1423.2015.28.010): filtering of attacks is left as future work. "
    "The flood opens requests that it never ends, more than the server holds connections. Without filters everybody's "
    "requests are refused, in whichever network they are; with them the border router drops what is beyond a source's "
    "share, the server gives up on slow requests, and who had too many of those is refused at the border."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``edge_flood``; none for any other run."""
    floods = [event.detail for event in run.events("edge-flood")]
    if not floods:
        return []
    seen = {flood["step"]: fetches(run, flood["step"]) for flood in floods}
    caption = (
        "Fetches by their start, seconds after that of the flood, and how long they took; crosses at the top failed. "
        "Grey: the flood."
    )
    drawn: list[Block] = [_table(floods, seen), Figure("edge-flood", partial(curves, floods, seen), caption)]
    return [Section("Flood and filters", [*drawn, Text(NOTE, "note")])]


def phase_of(flood: Mapping[str, Any], fetch: Fetched) -> str:
    """Whether a fetch was over before the flood, began after it, or neither."""
    if fetch.ended <= flood["begun"]:
        return "before"
    return "after" if fetch.started >= flood["ended"] else "during"


def _table(floods: Sequence[Mapping[str, Any]], seen: Mapping[str, Sequence[Fetched]]) -> Table:
    rows = []
    for flood in floods:
        everybody = seen[flood["step"]]
        for network in dict.fromkeys(fetch.network for fetch in everybody):
            mine = [fetch for fetch in everybody if fetch.network == network]
            cells = []
            for phase in PHASES:
                told = [fetch for fetch in mine if phase_of(flood, fetch) == phase]
                good = [fetch.total for fetch in told if fetch.outcome == "ok" and fetch.total is not None]
                cells += [f"{len(told) - len(good)} of {len(told)}", seconds(median(good)) if good else NONE]
            rows.append((flood["step"], network, *cells))
    head = ["step", "network", *(f"{what} {phase}" for phase in PHASES for what in ("failed", "median"))]
    bans = "; ".join(f"{flood['step']}: {len(flood['bans'])} sources banned" for flood in floods)
    return Table(head, rows, caption=f"Fetches of users. {bans}.", text=(0, 1), console=True)


def curves(floods: Sequence[Mapping[str, Any]], seen: Mapping[str, Sequence[Fetched]]) -> Drawing:
    """One panel a step: the times of fetches, and those that failed."""
    figure = drawing(PAGE, 1.9 * len(floods) + 0.4)
    panels = figure.subplots(len(floods), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    longest = max((f.total for step in seen.values() for f in step if f.outcome == "ok" and f.total), default=1.0)
    for flood, axes in zip(floods, panels, strict=True):
        everybody, begun = seen[flood["step"]], flood["begun"]
        axes.axvspan(0, flood["ended"] - begun, color="0.92", zorder=0)
        for number, network in enumerate(dict.fromkeys(fetch.network for fetch in everybody)):
            mine = [fetch for fetch in everybody if fetch.network == network]
            good = [fetch for fetch in mine if fetch.outcome == "ok"]
            bad = [fetch for fetch in mine if fetch.outcome != "ok"]
            hue = color(number)
            times = [fetch.total or 0.0 for fetch in good]
            axes.plot([f.started - begun for f in good], times, ".", color=hue, label=network)
            axes.plot([f.started - begun for f in bad], [1.15 * longest] * len(bad), "x", color=hue, markersize=4)
        axes.set(title=flood["step"], ylabel="time (s)", ylim=(0, 1.25 * longest))
    panels[-1].set_xlabel("seconds after the flood began")
    legend_above(figure, entries(panels))
    return figure
