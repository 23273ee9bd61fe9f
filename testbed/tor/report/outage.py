"""The sections on services that went down with one instance: the late starter, and the takeover by many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from testbed.measure.reader import RunReader
from testbed.measure.stats import Estimate, mean_interval
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.numbers import NONE, estimate, number, plural, seconds, spread
from testbed.tor.report import hole_figures as figures
from testbed.tor.report.holes import Hole, Holes, holes
from testbed.tor.report.trials import quantile

MOST_COURSES = 4
"""Trials that are shown in full."""
COURSE = (
    "{step}. Above: whose descriptor each responsible HSDir held, read back from it. Middle: fresh clients, served by "
    "whom, or how long they tried in vain. Below: clients that asked again and again; dots are complete downloads, "
    "lines requests of more than two seconds. Black: the instance that ended at 0 and its descriptor; dashed line: "
    "others were made to publish; dotted: all their uploads had been answered."
)
BARS = (
    "From the last success of anybody to the first (dark), and until every client had been served once more (light). A "
    "client that still has the dead instance's descriptor may stall at its introduction points for 31 s each when the "
    "service is there again; a fresh client has none."
)
LATE = (
    "Published (DOI 10.3969/j.issn.1003-6970.2016.02.017): the late starter stops at tick 3000 of 5000 and the service "
    "is down until another instance republishes at 4000. Here the time of that is set: tor itself publishes again "
    "after 60 to 120 minutes, at random, and the survivors do not notice that nobody can find them. So the length of "
    "the hole is the time that was chosen and what comes on top; that it lasts until then is the finding."
)
TAKEOVER = (
    "All instances have one key, so their revision counters are comparable: encrypted seconds since the start of the "
    "shared-random period. Instances that publish in the same second have the same counter; an HSDir refuses an upload "
    "whose counter is not higher than what it has. Nothing is published about this."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for runs of ``onion_late_starter`` and ``onion_takeover``; none for any other run."""
    late, taken = holes(run, "late-starter", "signal"), holes(run, "takeover", "publish")
    made = []
    if late:
        made.append(Section("Late starter", [*_late(late), *_shown(late)]))
    if taken:
        made.append(Section("Takeover", [*_taken(taken), *_shown(taken), _uploads(taken)]))
    return made


def _late(found: Sequence[Holes]) -> list[Block]:
    rows = [
        (
            str(condition.n),
            condition.condition,
            seconds(condition.republish.value),
            estimate(condition.service, seconds),
            estimate(_fresh(condition), seconds),
            estimate(condition.clients, seconds),
            seconds(quantile(condition.times, 1.0)),
            estimate(mean_interval([float(hole.lost) for hole in condition.repeats]), number),
        )
        for condition in found
    ]
    head = ("N", "signal", "republish", "hole", "fresh client", "clients, median", "slowest", "lost")
    caption = (
        f"{_repeats(found)}: when a survivor was made to publish, time from the last success of anybody to the first, "
        "and from the late starter's end to the first success of a fresh client, of the clients, and of the slowest"
    )
    compared = [
        (
            f"N={condition.n}, {condition.condition}",
            "3000 to 4000: 1000 ticks, until another republishes",
            f"{seconds(condition.service.value)}; republished {seconds(condition.republish.value)} after the end",
            spread(condition.service, seconds),
        )
        for condition in found
    ]
    return [
        Table(head, rows, caption=caption, text=(1,), console=True),
        Table(("", "published", "measured", "spread"), compared, text=(0, 1, 2, 3)),
        Text(LATE, kind="note"),
    ]


def _taken(found: Sequence[Holes]) -> list[Block]:
    rows = [
        (
            str(condition.n),
            condition.condition,
            estimate(condition.service, seconds),
            estimate(_fresh(condition), seconds),
            estimate(condition.clients, seconds),
            seconds(quantile(condition.times, 1.0)),
            f"{_mean([hole.acknowledged for hole in condition.repeats])} / "
            f"{_mean([hole.refused for hole in condition.repeats])}",
            f"{_mean([len(_names(hole)) for hole in condition.repeats])}, "
            f"{_mean([len(hole.revisions) for hole in condition.repeats])}",
        )
        for condition in found
    ]
    head = ("N", "publish", "dead time", "fresh client", "clients, median", "slowest", "uploads", "held")
    caption = (
        f"{_repeats(found)}: time from the last success of anybody to the first, from the holder's end to the first "
        "success of a fresh client, of the clients, and of the slowest; uploads that HSDirs took / refused; different "
        "instances, and revision counters, that they held in the end"
    )
    compared = [
        (condition.name, "nothing", seconds(condition.service.value), spread(condition.service, seconds))
        for condition in found
    ]
    return [
        Table(head, rows, caption=caption, text=(1,), console=True),
        Table(("dead time", "published", "measured", "spread"), compared, text=(0, 1, 2, 3)),
        Text(TAKEOVER, kind="note"),
    ]


def _shown(found: Sequence[Holes]) -> list[Block]:
    blocks: list[Block] = [Figure("outages", partial(figures.outage_bars, found), f"{_repeats(found)}. {BARS}")]
    first = [condition.repeats[0] for condition in found][:MOST_COURSES]
    for hole in first:
        name = hole.trial.step.name
        caption = COURSE.format(step=f"Step {name} (1 of {_repeats(found)})")
        blocks.append(Figure(f"course-{name}", partial(figures.course, hole), caption))
    blocks.append(_gaps(found))
    return blocks


def _gaps(found: Sequence[Holes]) -> Table:
    rows = []
    for condition in found:
        for hole in condition.repeats:
            rows += [
                (hole.trial.step.name, gap.who, _moment(gap.last), _moment(gap.first), seconds(gap.length.seconds))
                for gap in [hole.service, hole.fresh, *hole.clients]
            ]
    head = ("step", "who", "last success", "first success", "between")
    caption = "Seconds after the instance's end, by the last byte of a complete download."
    return Table(head, rows, caption=caption, text=(0, 1), folded="The hole as each client saw it")


def _uploads(found: Sequence[Holes]) -> Table:
    rows = [row for condition in found for hole in condition.repeats for row in _read(hole)]
    head = ("step", "HSDir", "from", "to", "instance", "revision counter")
    folded = f"Revision counters at the HSDirs ({len(rows)} readings)"
    return Table(head, rows, text=(0, 1, 4), folded=folded)


def _read(hole: Hole) -> list[tuple[str, ...]]:
    return [
        (
            hole.trial.step.name,
            reading.hsdir,
            _moment(reading.start - hole.ended),
            _moment(reading.end - hole.ended),
            reading.instance or "none",
            NONE if reading.revision is None else str(reading.revision),
        )
        for reading in hole.readings
    ]


def _names(hole: Hole) -> set[str]:
    return {name for name in hole.holders.values() if name}


def _fresh(condition: Holes) -> Estimate:
    if any(value == float("inf") for value in condition.fresh):
        return Estimate(float("inf"), n=len(condition.fresh))
    return mean_interval(condition.fresh)


def _moment(at: float | None) -> str:
    return NONE if at is None else f"{at:+.1f} s"


def _mean(counts: Sequence[int]) -> str:
    return number(sum(counts) / len(counts))


def _repeats(found: Sequence[Holes]) -> str:
    return plural(max(len(condition.repeats) for condition in found), "repeat")
