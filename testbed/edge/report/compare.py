"""The section that compares modes: how long users of each network wait, beside what was published, and by which way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.edge.measure.compare import EXPERIMENT
from testbed.edge.report.ways import ways_drawing
from testbed.measure.stats import Estimate, Time, bootstrap_median, bootstrap_ratio
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.figures import PAGE, PALETTE, drawing, entries, legend_above
from testbed.report.numbers import NONE, estimate, mebibytes, number, plural, seconds, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import Event, RunReader

BASE = "none"
"""The mode that others are compared with: everything through the education network."""
PUBLISHED = "below 10 %"
NOTE = (
    "Published (DOI 10.3969/j.issn.1007-1423.2015.28.010): 10 to 50 ms inside a network, 200 to 500 ms between "
    "networks, and after the redirection the delay of the transfer falls below 10 % of what it was. Compared here is "
    "the last request alone, from its connection to the last byte, with the whole download in mode none. The "
    "redirection itself crosses the exchange once more and is paid once a site, not once a page; it is part of the "
    "time in all."
)


@dataclass(frozen=True)
class Cell:
    """All visits of one network's users for one path in one mode, by repeat."""

    mode: str
    network: str
    path: str
    repeats: tuple[tuple[Event, ...], ...]

    def times(self, key: str) -> list[list[Time]]:
        """``total`` or another time of each visit; one that failed never ended."""
        return [[_time(event, key) for event in repeat] for repeat in self.repeats]

    def median(self, key: str) -> Estimate:
        """Its median, seconds."""
        return bootstrap_median(self.times(key))

    @property
    def visits(self) -> list[Event]:
        """Of all repeats."""
        return [event for repeat in self.repeats for event in repeat]

    @property
    def crossed(self) -> float:
        """Mean bytes between networks of a visit."""
        return sum(int(event.detail["exchange"]) for event in self.visits) / len(self.visits)


def _time(event: Event, key: str) -> Time:
    value = event.detail.get(key)
    return Time(float(value)) if event.detail.get("outcome") == "ok" and value is not None else Time(float("inf"))


def cells(run: RunReader) -> list[Cell]:
    """What a run of ``edge_compare`` has, in the order of its modes."""
    events = run.events(EXPERIMENT)
    found: dict[tuple[str, str, str], dict[int, list[Event]]] = {}
    for step in run.steps(EXPERIMENT):
        for event in step.during(events):
            key = (str(step.detail["mode"]), str(event.detail["network"]), str(event.detail["path"]))
            found.setdefault(key, {}).setdefault(step.repeat, []).append(event)
    return [Cell(*key, tuple(tuple(repeat) for repeat in repeats.values())) for key, repeats in found.items()]


def sections(run: RunReader) -> list[Section]:
    """The section of a run of ``edge_compare``; none for any other run."""
    found = cells(run)
    if not found:
        return []
    repeats = plural(max(len(cell.repeats) for cell in found), "repeat")
    blocks: list[Block] = [published(found), _times(found, repeats)]
    blocks.append(
        Figure("edge-latency", partial(bars, found), f"Median time in all, from first to last byte ({repeats}).")
    )
    visits = [visit for cell in found for visit in cell.visits]
    modes = list(dict.fromkeys(cell.mode for cell in found))
    for mode in modes:
        ways = _ways([cell for cell in found if cell.mode == mode])
        caption = (
            f"The way of each request in mode {mode}, as the links' counters show it; dashed where it was redirected."
        )
        blocks.append(Figure(f"edge-ways-{mode}", partial(ways_drawing, ways), caption))
    if any(visit.detail["outcome"] != "ok" for visit in visits):
        failed = sum(visit.detail["outcome"] != "ok" for visit in visits)
        blocks.append(Text(f"{failed} of {len(visits)} visits brought no whole page.", kind="note"))
    blocks.append(Text(NOTE, kind="note"))
    return [Section("Users of each network in each mode", blocks)]


def gain(found: Sequence[Cell], mode: str, network: str, path: str) -> Estimate | None:
    """Transfer after redirection over the whole download without a mode; None where one of them is missing."""
    by_key = {(cell.mode, cell.network, cell.path): cell for cell in found}
    here, base = by_key.get((mode, network, path)), by_key.get((BASE, network, path))
    if here is None or base is None:
        return None
    return bootstrap_ratio(here.times("transfer"), base.times("total"))


def published(found: Sequence[Cell]) -> Table:
    """The table "published | measured | spread"."""
    rows = []
    for mode in dict.fromkeys(cell.mode for cell in found):
        for cell in found:
            if cell.mode != mode or mode == BASE:
                continue
            ratio = gain(found, mode, cell.network, cell.path)
            theirs = PUBLISHED if mode == "redirect" and _leaves(found, cell) else NONE
            measured = "not measured in this run" if ratio is None else _percent(ratio.value)
            rows.append(
                (f"{mode}, {cell.network}: {cell.path}", theirs, measured, spread(ratio, _percent) if ratio else NONE)
            )
    head = ("transfer over the same without a mode", "published", "measured", "spread")
    return Table(head, rows, text=(0, 1, 2, 3), console=True)


def _percent(value: float) -> str:
    return f"{number(100 * value, 2)} %"


def _leaves(found: Sequence[Cell], cell: Cell) -> bool:
    """Whether the network's users come across the exchange without a mode."""
    same = [c for c in found if (c.mode, c.network, c.path) == (BASE, cell.network, cell.path)]
    return any(c.crossed > sum(int(visit.detail["bytes"]) for visit in c.visits) / len(c.visits) / 2 for c in same)


def _times(found: Sequence[Cell], repeats: str) -> Table:
    rows = [
        (
            cell.mode,
            cell.network,
            cell.path,
            estimate(cell.median("connect"), seconds),
            estimate(cell.median("first_byte"), seconds),
            estimate(cell.median("redirect"), seconds) if _redirected(cell) else NONE,
            estimate(cell.median("transfer"), seconds),
            estimate(cell.median("total"), seconds),
            mebibytes(cell.crossed),
        )
        for cell in found
    ]
    head = ("mode", "network", "path", "connect", "first byte", "redirect", "transfer", "in all", "over the exchange")
    caption = (
        f"{repeats}; medians; connect, first byte and transfer are of the last request, each from its start; "
        "data over the exchange of one visit"
    )
    return Table(head, rows, caption=caption, text=(0, 1, 2))


def _redirected(cell: Cell) -> bool:
    return any(len(visit.detail["ways"]) > 1 for visit in cell.visits)


def _ways(found: Sequence[Cell]) -> list[tuple[str, list[list[str]]]]:
    """(network, ways of a visit's requests) of the first user of each network."""
    ways: dict[str, list[list[str]]] = {}
    for cell in found:
        for visit in cell.visits:
            detail: dict[str, Any] = visit.detail
            ways.setdefault(cell.network, [list(way) for way in detail["ways"]])
    return list(ways.items())


def bars(found: Sequence[Cell]) -> Drawing:
    """Median time in all: a panel a path, a group a network, a bar a mode, with its interval."""
    paths = list(dict.fromkeys(cell.path for cell in found))
    networks = list(dict.fromkeys(cell.network for cell in found))
    modes = list(dict.fromkeys(cell.mode for cell in found))
    figure = drawing(PAGE, 2.6)
    panels = figure.subplots(1, len(paths), squeeze=False)[0]
    width = 0.8 / len(modes)
    for axes, path in zip(panels, paths, strict=True):
        for index, mode in enumerate(modes):
            for cell in found:
                if cell.mode != mode or cell.path != path:
                    continue
                middle = cell.median("total")
                x = networks.index(cell.network) + (index - (len(modes) - 1) / 2) * width
                error = None
                if middle.low is not None and middle.high is not None:
                    error = [[middle.value - middle.low], [middle.high - middle.value]]
                if middle.value != float("inf"):
                    axes.bar(x, middle.value, width, yerr=error, color=PALETTE[index % len(PALETTE)], label=mode)
        axes.set(title=path, xticks=range(len(networks)), xticklabels=networks)
    panels[0].set_ylabel("time in all (s)")
    legend_above(figure, entries(panels))
    return figure
