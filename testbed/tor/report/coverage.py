"""The section on many instances behind one address: how many clients it takes to reach them all, and how evenly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from testbed.measure.reader import RunReader
from testbed.measure.stats import mean_interval
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.figures import COLUMN, GREY, PAGE, drawing, entries, legend_above, shortened
from testbed.report.numbers import NONE, estimate, index, number, percent, plural
from testbed.tor.measure.split import Split, clients_for_all, coverage, expected_coverage, split
from testbed.tor.report.figures import way_color
from testbed.tor.report.trials import Trial, grouped, trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NOTE = (
    "Published (UCL, 2015): six different OnionBalance descriptors on the six HSDirs would allow for 6 x 10 = 60 "
    "instances; proposed, never run. The ideal is the coupon collector's: every client picks one of all instances by "
    "chance, each equally likely (band: two standard deviations). A real client picks an HSDir and then an "
    "introduction point of its descriptor; an introduction point that two instances share counts for one of them only, "
    "and a relay that is dead or slow for none."
)


@dataclass(frozen=True)
class Covered:
    """All repeats of one number of instances, published in one way."""

    n: int
    publish: str
    repeats: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """In short."""
        return f"{self.publish}, N={self.n}"

    @cached_property
    def curves(self) -> list[list[int]]:
        """Distinct instances reached by the first, the first two ... clients, by repeat; in the order of their ends."""
        return [coverage(_served(trial), trial.nodes) for trial in self.repeats]

    @cached_property
    def splits(self) -> list[Split]:
        """The split over the instances, by repeat."""
        return [split([name for name in _served(trial) if name], trial.nodes) for trial in self.repeats]

    @property
    def first_all(self) -> list[int | None]:
        """How many clients it took until all had been reached, by repeat."""
        return [next((k for k, seen in enumerate(curve, 1) if seen == self.n), None) for curve in self.curves]


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``onion_hybrid_60``; none for any other run."""
    groups = grouped(trials(run, "coverage"), lambda trial: (trial.n, trial.word("publish")))
    found = [Covered(n, publish, tuple(group)) for (n, publish), group in groups.items()]
    found = [covered for covered in found if any(covered.curves)]
    if not found:
        return []
    repeats = plural(max(len(covered.repeats) for covered in found), "repeat")
    blocks: list[Block] = [
        _table(found, repeats),
        _published(found),
        Text(NOTE, kind="note"),
        Figure(
            "coverage",
            partial(coverage_curves, found),
            f"Different instances that had served at least one of the first k fresh clients ({repeats}, a line each), "
            "beside the ideal: its mean, dashed, and two standard deviations about it.",
        ),
        Figure(
            "coverage-counts",
            partial(counts, found),
            f"Fresh clients that each instance served, the most first ({repeats} added up); dashed: the even share. "
            "Grey: what an even random choice gives, sorted likewise.",
        ),
        _counts_table(found),
    ]
    return [Section("Instances reached", blocks)]


def _served(trial: Trial) -> list[str]:
    """Who served each fresh client, in the order in which they ended; empty for one that failed."""
    return [fresh.instance if fresh.ok else "" for fresh in trial.fresh if not fresh.cut]


def _table(found: Sequence[Covered], repeats: str) -> Table:
    rows = []
    for covered in found:
        fresh = [item for trial in covered.repeats for item in trial.fresh]
        ok = sum(item.ok for item in fresh)
        reached = mean_interval([float(part.reached) for part in covered.splits], bounds=(0, covered.n))
        rows.append(
            (
                covered.publish,
                str(covered.n),
                f"{ok} / {len(fresh) - ok}",
                estimate(reached, number),
                " / ".join(NONE if k is None else str(k) for k in covered.first_all),
                number(clients_for_all(covered.n)),
                estimate(mean_interval([part.fairness for part in covered.splits], bounds=(0, 1)), index),
                estimate(covered.splits[0].by_chance, index),
            )
        )
    head = ("publish", "N", "ok / failed", "reached", "all after", "ideal", "Jain", "by chance")
    caption = (
        f"{repeats}: fresh clients; instances that served one; clients until all were reached, and on average by even "
        "chance; Jain's index of the clients by instance, and by even chance, with the range of 95 %"
    )
    return Table(head, rows, caption=caption, text=(0,), console=True)


def _published(found: Sequence[Covered]) -> Table:
    rows = [
        (
            covered.name,
            "60 proposed, not run",
            " / ".join(f"{part.reached} of {covered.n}" for part in covered.splits),
            " / ".join(
                f"{percent(min(part.shares.values()))} to {percent(max(part.shares.values()))}"
                for part in covered.splits
            ),
        )
        for covered in found
    ]
    return Table(("", "published", "instances reached", "least and most share"), rows, text=(0, 1, 2, 3))


def _counts_table(found: Sequence[Covered]) -> Table:
    rows = [
        (trial.step.name, name, str(count), percent(part.shares[name]))
        for covered in found
        for trial, part in zip(covered.repeats, covered.splits, strict=True)
        for name, count in part.counts.items()
    ]
    return Table(("step", "instance", "clients", "share"), rows, text=(0, 1), folded="Clients by instance")


def coverage_curves(found: Sequence[Covered]) -> Drawing:
    """Distinct instances over the number of clients, beside the ideal."""
    figure = drawing(COLUMN + 1.2, 2.9)
    axes = figure.subplots()
    longest = max(len(curve) for covered in found for curve in covered.curves)
    for place, covered in enumerate(found):
        shade = way_color(place)
        for curve in covered.curves:
            axes.plot(
                range(1, len(curve) + 1), curve, drawstyle="steps-post", color=shade, label=shortened(covered.name)
            )
    k = np.arange(1, longest + 1)
    for n in sorted({covered.n for covered in found}):
        mean, deviation = expected_coverage(n, longest)
        axes.plot(k, mean, color="black", linestyle="--", linewidth=0.9, label="ideal")
        low, high = np.maximum(mean - 2 * deviation, 0), np.minimum(mean + 2 * deviation, n)
        axes.fill_between(k, low, high, color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(n, color=GREY, linewidth=0.6)
    axes.set(xlabel="fresh clients", ylabel="different instances reached", xlim=(0, longest), ylim=(0, None))
    legend_above(figure, entries([axes]))
    return figure


def counts(found: Sequence[Covered]) -> Drawing:
    """Clients by instance, sorted, beside a random choice."""
    figure = drawing(PAGE, 0.6 + 1.7 * len(found))
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for place, (covered, axes) in enumerate(zip(found, panels, strict=True)):
        together = np.sum([list(part.counts.values()) for part in covered.splits], axis=0)
        ranked = np.sort(together)[::-1]
        total = int(ranked.sum())
        drawn = np.random.default_rng(0).multinomial(total, np.full(covered.n, 1 / covered.n), size=400)
        likely = np.sort(drawn, axis=1)[:, ::-1]
        x = np.arange(1, covered.n + 1)
        axes.bar(x, ranked, color=way_color(place), alpha=0.8, label=shortened(covered.name))
        low, high = np.quantile(likely, [0.025, 0.975], axis=0)
        axes.fill_between(
            x, low, high, color=GREY, alpha=0.45, step="mid", linewidth=0, label="even random choice, 95 %"
        )
        axes.axhline(total / covered.n, color="black", linestyle="--", linewidth=0.8)
        axes.set(ylabel="clients", xlim=(0.4, covered.n + 0.6))
    panels[-1].set_xlabel("instances, from the one that served most to the one that served fewest")
    legend_above(figure, entries(panels))
    return figure
