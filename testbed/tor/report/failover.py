"""The section on instances that die: how soon clients are served again, and why some wait so long."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from testbed.measure.reader import RunReader, Sample
from testbed.measure.stats import mean_interval, median, shares
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.numbers import NONE, estimate, index, number, percent, plural, seconds, spread
from testbed.tor.report import failover_figures as figures
from testbed.tor.report.data import BYTES
from testbed.tor.report.recovery import Recovery, Repeats, failovers
from testbed.tor.report.trials import grouped, quantile, within

QUICK = 5.0
"""Seconds: what is faster than this met no stall."""
EXPLANATION = (
    "Why the times fall into groups. A client keeps the descriptor that it has. When the instance behind it is gone, "
    "the client asks the descriptor's introduction points one after the other. One that has noticed refuses at once "
    "(NACK), and the client goes on. One that has not noticed acknowledges; then the client waits at the rendezvous "
    "point for an instance that does not exist any more, until it gives that circuit up after 31 s: a stall. So the "
    "times lie near 0, 1, 2 or 3 times 31 s. A client tries all points before it looks for another descriptor, so one "
    "point that is slow to notice stalls every client of that descriptor that comes to it before it does. When all "
    "introduction points have failed the client fetches a descriptor anew from one of the six HSDirs; if that is again "
    "the dead instance's, tor finds no usable introduction point in it, and the request fails at once; how often "
    "follows from how many HSDirs hold which descriptor, and where all six hold the dead instance's nobody is served "
    "until another one publishes. Each stall, refusal and useless descriptor below is from the clients' own logs "
    "(level info, domain rend)."
)
NOTE = (
    "The published experiment (DOI 10.3969/j.issn.1003-6970.2016.02.017) ran in a simulator with version 2 onion "
    "services and gives no recovery times: with instances that were started together the others took the load over "
    "quickly. Here real tor runs version 3. A client is affected if the ended instance had served it last."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``onion_failover``; none for any other run."""
    found = failovers(run)
    if not found:
        return []
    blocks: list[Block] = [
        _result(found),
        _published(found),
        Text(NOTE, kind="note"),
    ]
    if any(condition.affected for condition in found):
        caption = (
            "Affected clients that had been served again within a time after the instance's end "
            f"({_repeats(found)}); a curve that ends below 1 has clients that were not served again in the step. "
            "Dotted lines: one, two and three stalls of 31.5 s."
        )
        blocks.append(Figure("recovery", partial(figures.recovery_curves, found), caption))
    blocks += _why(found)
    blocks += _load_blocks(run, found)
    return [Section("Failover", blocks)]


def _repeats(found: Sequence[Repeats]) -> str:
    return plural(max(len(condition.failovers) for condition in found), "repeat")


def _result(found: Sequence[Repeats]) -> Table:
    rows = []
    for condition in found:
        pool = condition.pool
        clients = sum(len(failover.recoveries) for failover in condition.failovers)
        lost = [float(failover.lost) for failover in condition.failovers]
        rows.append(
            (
                str(condition.n),
                condition.manner,
                _held(condition),
                f"{len(pool)} of {clients}",
                estimate(condition.median, seconds),
                seconds(quantile(pool, 0.9)),
                percent(within(pool, QUICK)),
                estimate(mean_interval(lost, bounds=(0, math.inf)), number),
            )
        )
    head = (
        "N",
        "signal",
        "HSDirs",
        "affected",
        "median recovery",
        "90 %",
        f"within {QUICK:.0f} s",
        "requests lost",
    )
    caption = (
        f"{_repeats(found)}: HSDirs that held the ended instance's descriptor, by repeat; clients that it had served, "
        "and time until they were served again; downloads that failed from its end to the end of the step"
    )
    return Table(head, rows, caption=caption, text=(1,), console=True)


def _held(condition: Repeats) -> str:
    """``6, 2, 4 of 6``, a number a repeat."""
    read = [failover.held for failover in condition.failovers]
    return f"{', '.join(str(held) for held, _ in read)} of {max(of for _, of in read)}"


def _published(found: Sequence[Repeats]) -> Table:
    rows = []
    for condition in found:
        pool = condition.pool
        again = sum(time.observed for time in pool)
        measured = f"{again} of {len(pool)} served again, median {seconds(condition.median.value)}" if pool else NONE
        label = condition.name
        rows.append((label, "the others take over quickly", measured, spread(condition.median, seconds)))
    return Table(("", "published", "measured", "spread of the median"), rows, text=(0, 1, 2, 3))


def _why(found: Sequence[Repeats]) -> list[Block]:
    affected = [recovery for condition in found for recovery in condition.affected]
    blocks: list[Block] = [Text(EXPLANATION)]
    if not affected:
        return blocks
    groups = grouped(affected, lambda recovery: len(recovery.stalls))
    rows = [_mode(stalls, groups[stalls]) for stalls in sorted(groups)]
    head = (
        "stalls",
        "clients",
        "recovery, median",
        "fastest to slowest",
        "of that stalled",
        "refusals",
        "useless descriptors",
        "lost",
    )
    caption = (
        "Affected clients of all trials by the number of stalls that they logged. Medians a client; "
        f"({_repeats(found)}). What is left beside the stalls is building circuits, being refused, and fetching "
        "descriptors."
    )
    blocks.append(Table(head, rows, caption=caption, text=()))
    caption = (
        "Each affected client from the instance's end until it was served again, the fastest at the bottom. Red: "
        "stalled at a rendezvous point; strokes: an introduction point refused; crosses: the descriptor that it "
        f"fetched was the dead instance's again. {_repeats(found).capitalize()} together."
    )
    blocks.append(Figure("recovery-courses", partial(figures.courses, found), caption))
    return blocks


def _mode(stalls: int, clients: Sequence[Recovery]) -> tuple[str, ...]:
    times = [recovery.recovered for recovery in clients]
    observed = [time.seconds for time in times if time.observed]
    middle = quantile(times, 0.5)
    between = f"{number(min(observed))} to {seconds(max(observed))}" if observed else NONE
    if len(observed) < len(times):
        between += f", {len(times) - len(observed)} not in time"
    return (
        str(stalls),
        str(len(clients)),
        seconds(middle),
        between,
        seconds(median([recovery.stalled for recovery in clients])),
        number(median([recovery.count("nack") for recovery in clients])),
        number(median([recovery.count("useless") for recovery in clients])),
        str(sum(recovery.lost for recovery in clients)),
    )


def _load_blocks(run: RunReader, found: Sequence[Repeats]) -> list[Block]:
    rows = []
    for condition in found:
        for failover in condition.failovers:
            before, after = shares(_floats(failover.served_before)), shares(_floats(failover.served_after))
            rows += [
                (
                    failover.trial.step.name,
                    name + (" (ended)" if name == failover.victim else ""),
                    percent(before[name]),
                    percent(after[name]),
                )
                for name in failover.trial.nodes
            ]
    fairness = "; ".join(
        f"{condition.name}: {_mean(condition.fairness(after=False))} and {_mean(condition.fairness(after=True))}"
        for condition in found
    )
    blocks: list[Block] = [
        Text(f"Jain's index of the downloads before the end, and among the survivors after it: {fairness}."),
    ]
    counters: dict[str, list[Sample]] = defaultdict(list)
    for sample in run.samples(BYTES):
        counters[sample.node].append(sample)
    first = [condition.failovers[0] for condition in found]
    if counters:
        caption = "Cumulative data that each instance sent in the first repeat, by the kernel's counters at the router."
        blocks.append(Figure("taken-over", partial(figures.taken_over, first, counters), caption))
    head = ("step", "instance", "share of downloads before", "after")
    blocks.append(Table(head, rows, text=(0, 1), folded="Shares of the instances before and after"))
    return blocks


def _floats(counts: dict[str, int]) -> dict[str, float]:
    return {name: float(count) for name, count in counts.items()}


def _mean(values: Sequence[float]) -> str:
    known = [value for value in values if not math.isnan(value)]
    return estimate(mean_interval(known, bounds=(0.0, 1.0)), index) if known else NONE
