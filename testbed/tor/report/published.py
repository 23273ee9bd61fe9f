"""What was published about same-key instances, and the same from a run, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from testbed.measure.stats import Estimate, bootstrap_ratio, mean_interval, ranked_share_intervals
from testbed.report.blocks import Block, Figure, Table, Text
from testbed.report.numbers import estimate, index, mebibytes, number, percent, spread
from testbed.tor.report.data import Condition, averaged
from testbed.tor.report.figures import shares_by_rank

NOT_MEASURED = "not measured in this run"
NOTE = (
    "Read with care. The published figures (DOI 10.3969/j.issn.1003-6970.2016.02.017) come from a simulator with "
    "version 2 onion services and runs of 5000 ticks of one second. Here real tor runs version 3 in real time, in "
    "shorter steps and with instances whose links are limited by the topology; six HSDirs are responsible, as then. "
    "So shares and orders can be compared; bytes and seconds only in their relation to each other."
)


@dataclass(frozen=True)
class Published:
    """Shares of the instances, largest first, for one number of instances, and MiB on the largest."""

    n: int
    shares: tuple[float, ...]
    largest_mib: float | None = None


PAPER = (
    Published(2, (0.56, 0.44), 360),
    Published(3, (0.50, 0.32, 0.18), 330),
)
SAME_KEY = ("naive", "simultaneous", "late")
"""Ways in which instances publish as in that paper: copies that know nothing of each other."""
WITH_TRAFFIC = {6: 4}
"""Number of instances to how many of them got any traffic."""


def published_shares(way: str, n: int) -> str:
    """The published shares in percent, in short; empty where there are none, as of ways that the paper has not."""
    if way not in SAME_KEY:
        return ""
    for paper in PAPER:
        if paper.n == n:
            return "/".join(f"{100 * share:.0f}" for share in paper.shares)
    return f"{WITH_TRAFFIC[n]} of {n} used" if n in WITH_TRAFFIC else ""


def comparison(found: Sequence[Condition]) -> list[Block]:
    """The table "published | measured | spread" and what to know when reading it."""
    by_key = {(condition.publish, condition.n): condition for condition in found}
    ways = [way for way in dict.fromkeys(condition.publish for condition in found) if way in SAME_KEY]
    if not ways:
        return []
    rows: list[tuple[str, str, str, str]] = []
    for way in ways:
        for paper in PAPER:
            rows += _share_rows(way, paper, by_key.get((way, paper.n)))
        for n, some in WITH_TRAFFIC.items():
            rows.append(_traffic_row(way, n, some, by_key.get((way, n))))
        rows += _speed_rows(way, found)
    rows.append(_publish_row(by_key))
    blocks: list[Block] = []
    several = [condition for condition in found if condition.publish in ways and condition.n > 1 and condition.amounts]
    if several:
        caption = (
            "Shares of the data sent, from the largest to the smallest of each repeat, whichever instance that was: "
            f"{averaged(several)}; dots are single repeats, diamonds the published shares, the dashed line an even "
            "share. Sorting alone makes the first of equals look larger."
        )
        draw = partial(shares_by_rank, several, {paper.n: paper.shares for paper in PAPER})
        blocks.append(Figure("shares-ranked", draw, caption))
    table = Table(("", "published", "measured", "spread"), rows, text=(0, 1, 2, 3))
    return [*blocks, table, Text(NOTE, kind="note")]


def _share_rows(way: str, paper: Published, condition: Condition | None) -> list[tuple[str, str, str, str]]:
    labels = (f"{way}, N={paper.n}: shares, largest first", f"{way}, N={paper.n}: data on the largest")
    theirs = (published_shares(way, paper.n).replace("/", " / ") + " %", f"about {paper.largest_mib:.0f} MiB")
    if condition is None or not condition.amounts:
        return [(label, figure, NOT_MEASURED, "") for label, figure in zip(labels, theirs, strict=True)]
    ranked = ranked_share_intervals(condition.amounts)
    largest = mean_interval([max(repeat.bytes.values()) for repeat in condition.repeats if repeat.bytes])
    seconds = sum(repeat.step.seconds for repeat in condition.repeats) / len(condition.repeats)
    sent = f"{mebibytes(largest.value)} in {seconds:.0f} s" if largest.n else NOT_MEASURED
    return [
        (labels[0], theirs[0], _joined(ranked), _spreads(ranked)),
        (labels[1], theirs[1], sent, spread(largest, mebibytes) if largest.n else ""),
    ]


def _traffic_row(way: str, n: int, some: int, condition: Condition | None) -> tuple[str, str, str, str]:
    label, theirs = f"{way}, N={n}: instances with traffic", f"{some} of {n}"
    if condition is None or not condition.amounts:
        return label, theirs, NOT_MEASURED, ""
    counts = [repeat.with_traffic for repeat in condition.repeats if any(repeat.amounts.values())]
    mean = mean_interval(counts)
    low, high = min(counts), max(counts)
    between = f"{low} to {high} over repeats" if len(counts) > 1 else spread(mean, number)
    return label, theirs, f"{number(mean.value, 2)} of {n}", between


def _speed_rows(way: str, found: Sequence[Condition]) -> list[tuple[str, str, str, str]]:
    """Download time with several instances against that with one, however the one published."""
    singles = [condition for condition in found if condition.n == 1]
    single = next((condition for condition in singles if condition.publish == way), singles[0] if singles else None)
    several = [condition for condition in found if condition.publish == way and condition.n > 1]
    theirs = "several clearly faster than one"
    if single is None or not several:
        return [(f"{way}: download time, several against one", theirs, NOT_MEASURED, "")]
    rows = []
    for condition in several:
        ratio = bootstrap_ratio(condition.times, single.times)
        of_one = len(condition.repeats) == 1 or len(single.repeats) == 1
        within = f"{spread(ratio, index)} (within one repeat: no conclusion)" if of_one else spread(ratio, index)
        label = f"{way}: median download time, N={condition.n} over N=1"
        rows.append((label, theirs, index(ratio.value), within))
    return rows


def _publish_row(by_key: dict[tuple[str, int], Condition]) -> tuple[str, str, str, str]:
    label, theirs = "simultaneous against naive: Jain's index", "publishing at the same moment is more even (UCL, 2015)"
    both = sorted(n for way, n in by_key if way == "naive" and n > 1 and ("simultaneous", n) in by_key)
    if not both:
        return label, theirs, NOT_MEASURED, ""
    pairs = [(n, by_key["simultaneous", n].fairness, by_key["naive", n].fairness) for n in both]
    values = "; ".join(f"N={n}: {index(together.value)} against {index(alone.value)}" for n, together, alone in pairs)
    if any(figure.low is None for _, *figures in pairs for figure in figures):
        return label, theirs, values, "one repeat: no conclusion"
    intervals = "; ".join(f"N={n}: {_interval(together)} against {_interval(alone)}" for n, together, alone in pairs)
    return label, theirs, values, intervals


def _joined(ranked: Sequence[Estimate]) -> str:
    return " / ".join(percent(figure.value).removesuffix(" %") for figure in ranked) + " %"


def _spreads(ranked: Sequence[Estimate]) -> str:
    if any(figure.low is None for figure in ranked):
        return "one repeat: no conclusion"
    return " / ".join(spread(figure, percent).replace(" %", "") for figure in ranked) + " %"


def _interval(figure: Estimate) -> str:
    return estimate(figure, index).partition(" ")[2]
