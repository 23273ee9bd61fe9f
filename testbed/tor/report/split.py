"""The sections on ways to publish: how fresh clients are split over instances, and what the loss of one costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from testbed.measure.reader import RunReader
from testbed.measure.stats import Estimate, Time, mean_interval, median_time
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.figures import COLUMN, GREY, drawing, entries, legend_above, shortened
from testbed.report.numbers import NONE, estimate, index, number, percent, plural, seconds
from testbed.tor.measure.split import Split, split
from testbed.tor.report.figures import way_color
from testbed.tor.report.trials import Trial, grouped, quantile, trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

PUBLISHED = {
    "naive": "highly uneven",
    "simultaneous": "better than naive",
    "distributor": "near even; failover works",
    "onionbalance": "limited by the introduction points in a descriptor",
    "hybrid": "proposed, not run",
}
"""What the write-up of 2015 (UCL) says of each way; it gives no figures."""
NOTE = (
    "Each fresh client is a tor that has no descriptor yet: it picks one of the responsible HSDirs by chance. Jain's "
    "index is 1 where all instances serve equally many, 1/N where one serves all; of few clients even a random choice "
    "stays below 1 (column \u201cby chance\u201d, with the range of 95 %). The load on introduction points is computed "
    "from the descriptors that the HSDirs hold: the share of the clients that the most used relay introduces if each "
    "picks by chance."
)


LATE = 5.0
"""Seconds to the first byte from which on a client counts as having met the loss."""


@dataclass(frozen=True)
class Way:
    """All repeats of one way to publish with one number of instances."""

    publish: str
    n: int
    repeats: tuple[Trial, ...]
    introductions: tuple[tuple[int, float], ...]
    """(different introduction points, share of the most used) of each repeat."""

    @cached_property
    def splits(self) -> list[Split]:
        """By repeat."""
        return [split([item.instance for item in trial.fresh if item.ok], trial.nodes) for trial in self.repeats]

    @property
    def fairness(self) -> Estimate:
        """Jain's index over repeats."""
        return mean_interval([part.fairness for part in self.splits], bounds=(0.0, 1.0))

    @property
    def by_chance(self) -> Estimate:
        """The same if every client picked an instance by chance."""
        return self.splits[0].by_chance


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``onion_distributor``; none for any other run."""
    found = _ways(run)
    losses = trials(run, "loss")
    made = []
    if found:
        blocks: list[Block] = [_table(found), Text(NOTE, kind="note"), *_figure(found), _shares(found)]
        made.append(Section("Split of fresh clients", blocks))
    if losses:
        made.append(Section("Loss of an instance", _loss_blocks(run, losses)))
    return made


def _ways(run: RunReader) -> list[Way]:
    seen = {str(event.detail.get("step")): event.detail for event in run.events("introductions")}
    groups = grouped(trials(run, "split"), lambda trial: (trial.word("publish"), trial.n))
    ways = []
    for (publish, n), group in groups.items():
        told = [seen[trial.step.name] for trial in group if trial.step.name in seen]
        points = tuple((int(detail["relays"]), float(detail["most"])) for detail in told)
        ways.append(Way(publish, n, tuple(group), points))
    return [way for way in ways if any(trial.fresh for trial in way.repeats)]


def _repeats(found: Sequence[Way]) -> str:
    return plural(max(len(way.repeats) for way in found), "repeat")


def _table(found: Sequence[Way]) -> Table:
    rows = []
    for way in found:
        fresh = [item for trial in way.repeats for item in trial.fresh if not item.cut]
        ok = sum(item.ok for item in fresh)
        ranked = [sorted(part.shares.values(), reverse=True) for part in way.splits]
        mean = [float(np.mean([row[rank] for row in ranked])) for rank in range(way.n)]
        relays = [str(relays) for relays, _ in way.introductions]
        rows.append(
            (
                way.publish,
                str(way.n),
                f"{ok} / {len(fresh) - ok}",
                estimate(way.fairness, index),
                estimate(way.by_chance, index),
                "/".join(f"{100 * share:.0f}" for share in mean),
                "/".join(str(part.reached) for part in way.splits),
                "/".join(dict.fromkeys(relays)) or NONE,
                percent(max(most for _, most in way.introductions)) if way.introductions else NONE,
                PUBLISHED.get(way.publish, NONE),
            )
        )
    head = ("publish", "N", "ok / failed", "Jain", "by chance", "shares, %", "reached", "intro points", "most used")
    caption = (
        f"{_repeats(found)}: fresh clients, Jain's index over instances, shares (largest first), instances reached, "
        "relays that introduce, and what was published (UCL, 2015)"
    )
    return Table((*head, "published"), rows, caption=caption, text=(0, 9), console=True)


def _shares(found: Sequence[Way]) -> Table:
    rows = [
        (trial.step.name, name, str(count), percent(part.shares[name]))
        for way in found
        for trial, part in zip(way.repeats, way.splits, strict=True)
        for name, count in part.counts.items()
    ]
    return Table(("step", "instance", "clients", "share"), rows, text=(0, 1), folded="Fresh clients by instance")


def _figure(found: Sequence[Way]) -> list[Block]:
    caption = (
        f"Jain's index of the instances that fresh clients reached ({_repeats(found)}; bars are 95 % intervals). "
        "Dotted: what an even random choice of as many clients gives on average; grey: in 95 of 100 cases."
    )
    return [Figure("split", partial(fairness, found), caption)]


def fairness(found: Sequence[Way]) -> Drawing:
    """Jain's index by way, a group of bars each number of instances."""
    ways = list(dict.fromkeys(way.publish for way in found))
    numbers = sorted({way.n for way in found})
    figure = drawing(COLUMN + 1.2, 2.6)
    axes = figure.subplots()
    width = 0.8 / len(ways)
    for way in found:
        place = ways.index(way.publish)
        x = numbers.index(way.n) + (place - (len(ways) - 1) / 2) * width
        value = way.fairness
        bars = None
        if value.low is not None and value.high is not None:
            bars = [[max(0.0, value.value - value.low)], [max(0.0, value.high - value.value)]]
        axes.bar(
            x,
            value.value,
            width * 0.92,
            color=way_color(place),
            alpha=0.8,
            label=shortened(way.publish),
            yerr=bars,
            error_kw={"elinewidth": 0.9, "capsize": 2},
        )
        chance = way.by_chance
        ends = [x - width / 2, x + width / 2]
        axes.plot(ends, [chance.value] * 2, color="black", linestyle=":", linewidth=1.2)
        if chance.low is not None and chance.high is not None:
            axes.fill_between(ends, chance.low, chance.high, color=GREY, alpha=0.3, linewidth=0)
    axes.set_xticks(range(len(numbers)), [f"N={n}" for n in numbers])
    axes.set(ylabel="Jain's index", ylim=(0, 1.05))
    legend_above(figure, entries([axes]))
    return figure


def _loss_blocks(run: RunReader, losses: Sequence[Trial]) -> list[Block]:
    groups = grouped(losses, lambda trial: (trial.word("publish"), trial.n, trial.word("redistributed")))
    rows = []
    for (publish, n, redistributed), group in groups.items():
        times = [time for trial in group for time in _times(trial)]
        fresh = [item for trial in group for item in trial.fresh if not item.cut]
        late = sum(time.seconds > LATE for time in times)
        rows.append(
            (
                publish,
                str(n),
                redistributed,
                f"{sum(item.ok for item in fresh)} / {sum(not item.ok for item in fresh)}",
                seconds(median_time(times)) if times else NONE,
                seconds(quantile(times, 0.95)),
                f"{late} of {len(times)}",
                _after(run, group),
            )
        )
    caption = (
        "The instance that most clients had reached was ended (SIGKILL, tor and web server); a fresh client set out "
        "every half second or so from then on. Times are from the start of its tor to the first byte; clients cut at "
        "the step's end count as longer than that."
    )
    head = (
        "publish",
        "N",
        "redistributed",
        "ok / failed",
        "median",
        "95 % within",
        "over 5 s or never",
        "placed after",
    )
    text = (
        "Without redistribution a client that gets the dead instance's descriptor tries its introduction points and "
        "then asks the other HSDirs one by one. Introduction points that have not noticed the death yet cost it half a "
        "minute each."
    )
    return [Table(head, rows, caption=caption, text=(0, 2, 6), console=True), Text(text, kind="note")]


def _times(trial: Trial) -> list[Time]:
    return [item.to_first_byte() for item in trial.fresh]


def _after(run: RunReader, group: Sequence[Trial]) -> str:
    """Seconds from the end of the instance until the others had its HSDirs, by repeat."""
    found = []
    for trial in group:
        ended = trial.moment("ended")
        if ended is None:
            continue
        until = trial.step.end if math.isfinite(trial.step.end) else ended.t
        placed = [
            event.t
            for event in run.events("distribution")
            if ended.t <= event.t <= until and event.detail.get("fetched")
        ]
        found.append(f"{number(placed[0] - ended.t, 2)} s" if placed else NONE)
    return " / ".join(found)
