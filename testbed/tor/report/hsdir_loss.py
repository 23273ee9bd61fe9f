"""The section on HSDirs that die: whether fresh clients still find the service, and how long it takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from testbed.measure.reader import RunReader
from testbed.measure.stats import Estimate, Time, bootstrap_median, ecdf
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.figures import DASHES, PAGE, PALETTE, drawing, entries, legend_above
from testbed.report.numbers import NONE, estimate, plural, seconds
from testbed.tor.report.trials import Trial, grouped, quantile, trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WORDS = {"none": "nobody dead", "others": "other relays dead", "hsdirs": "HSDirs dead", "back": "HSDirs back, empty"}
"""What a step was, in the order of a trial."""
NOTE = (
    "A client picks one of the responsible HSDirs at random. If that one is dead, or has no descriptor, it asks the "
    "next. An empty one costs a question. On a dead one tor builds circuits again and again until it gives up the "
    "request itself (TestingDirConnectionMaxStall): after 30 s in a testing network such as this one, after 5 min in "
    "the public one; so with two dead ones in a row a client has no answer within a minute. Dead relays cost circuits, "
    "whether or not they are HSDirs, so as many relays beside the service's HSDirs and introduction points stand for "
    "comparison. Published for version 2 (UCL, 2015): a client asks the other HSDirs one by one until it finds a live "
    "descriptor. An HSDir keeps descriptors in memory only; one that comes back stays empty until the service "
    "publishes again."
)


@dataclass(frozen=True)
class Loss:
    """All repeats of one number of relays that died, in one of four states."""

    dead: int
    what: str
    repeats: tuple[Trial, ...]

    @cached_property
    def times(self) -> list[list[Time]]:
        """From the start of each fresh client's tor to the first byte, by repeat."""
        return [[fresh.to_first_byte() for fresh in trial.fresh] for trial in self.repeats]

    @property
    def pool(self) -> list[Time]:
        """Of all repeats."""
        return [time for repeat in self.times for time in repeat]

    @property
    def median(self) -> Estimate:
        """Median, seconds."""
        return bootstrap_median(self.times)

    @property
    def holding(self) -> str:
        """How many HSDirs held a descriptor, of how many that were asked; empty where none was."""
        read = [event for trial in self.repeats for event in trial.readings]
        held = sum(bool(event.detail.get("instance")) for event in read)
        return f"{held} of {len(read)}" if read else NONE


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``onion_hsdir_loss``; none for any other run."""
    groups = grouped(
        trials(run, "hsdir-loss"), lambda trial: (int(trial.step.detail.get("dead", 0)), trial.word("what"))
    )
    found = [Loss(dead, what, tuple(group)) for (dead, what), group in groups.items() if what in WORDS]
    if not found:
        return []
    found.sort(key=lambda loss: (loss.dead, list(WORDS).index(loss.what)))
    repeats = plural(max(len(loss.repeats) for loss in found), "repeat")
    caption = (
        f"Share of fresh clients that had the first byte within a time from the start of their tor ({repeats}), by the "
        "number of relays that died."
    )
    blocks: list[Block] = [
        _table(found, repeats),
        Figure("hsdir-loss", partial(curves, found), caption),
        Text(NOTE, kind="note"),
    ]
    return [Section("Loss of HSDirs", blocks)]


def _table(found: Sequence[Loss], repeats: str) -> Table:
    rows = []
    for loss in found:
        fresh = [item for trial in loss.repeats for item in trial.fresh]
        ok = sum(item.ok for item in fresh)
        rows.append(
            (
                str(loss.dead),
                WORDS[loss.what],
                f"{ok} / {len(fresh) - ok}",
                estimate(loss.median, seconds),
                seconds(quantile(loss.pool, 0.9)),
                seconds(quantile(loss.pool, 1.0)),
                loss.holding,
                str(sum(int(trial.step.detail.get("points", 0)) for trial in loss.repeats)),
            )
        )
    head = (
        "relays",
        "state",
        "ok / failed",
        "median to first byte",
        "90 % within",
        "slowest",
        "HSDirs with descriptor",
    )
    caption = (
        f"{repeats}: fresh clients; time from the start of their tor to the first byte; HSDirs that held a descriptor "
        "where they were asked; dead relays that were introduction points too"
    )
    return Table(head, rows, caption=caption, text=(1,), console=True)


def curves(found: Sequence[Loss]) -> Drawing:
    """Share of fresh clients with their first byte within a time: a panel each number of dead relays."""
    numbers = sorted({loss.dead for loss in found})
    figure = drawing(PAGE, 2.5)
    panels = figure.subplots(1, len(numbers), sharex=True, sharey=True, squeeze=False)[0]
    longest = max((time.seconds for loss in found for time in loss.pool if time.observed), default=1.0)
    for loss in found:
        axes, index = panels[numbers.index(loss.dead)], list(WORDS).index(loss.what)
        t, share = ecdf(loss.pool)
        axes.plot(
            [0.1, *t, longest * 1.1],
            [0.0, *share, share[-1] if len(share) else 0.0],
            drawstyle="steps-post",
            color=PALETTE[index],
            linestyle=DASHES[index],
            label=WORDS[loss.what],
        )
    for number, axes in zip(numbers, panels, strict=True):
        axes.set_xscale("log")
        axes.set(
            title=plural(number, "relay"), xlabel="time to first byte (s)", xlim=(0.1, longest * 1.1), ylim=(0, 1.01)
        )
        axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    panels[0].set_ylabel("fresh clients served")
    legend_above(figure, entries(panels))
    return figure
