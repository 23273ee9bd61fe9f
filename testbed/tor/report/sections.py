"""The sections themselves: results first, then what explains them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.measure.reader import RunReader
from testbed.measure.stats import ranked_share_intervals, share_intervals, shares
from testbed.report.blocks import Block, Figure, Section, Table, Text
from testbed.report.numbers import NONE, estimate, index, percent, plural, seconds
from testbed.tor.report import figures
from testbed.tor.report.data import Condition, Measured, averaged, conditions, measured, over
from testbed.tor.report.published import comparison, published_shares
from testbed.tor.report.step_figures import MOST_REPEATS, cumulative, hsdir_map

if TYPE_CHECKING:
    from rich.table import Table as RichTable

INTERVALS = (
    "Intervals are 95 %. Those of medians are percentile bootstrap intervals over repeats and the downloads within "
    "them; those of shares and of Jain's index are Student's t over repeats. Downloads cut at a step's end count as "
    "longer than that (Kaplan-Meier), failed ones as never finished."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run whose steps say how many ``instances`` they ran; none for any other run."""
    steps = measured(run)
    found = conditions(steps)
    if not found:
        return []
    made = [
        Section("Result", [_result_table(found), Text(INTERVALS, kind="note")]),
        Section("Published and measured", comparison(found)),
        Section("Share of each instance", _share_blocks(steps, found)),
        Section("Download time", _time_blocks(found)),
        Section("Descriptors at the HSDirs", _hsdir_blocks(steps)),
    ]
    return [section for section in made if section.blocks]


def summary_table(run_path: Path) -> RichTable:
    """The result by way to publish and number of instances, for the terminal."""
    from testbed.report.console import as_rich

    return as_rich(_result_table(conditions(measured(RunReader(run_path)))))


def _result_table(found: Sequence[Condition]) -> Table:
    rows = []
    for condition in found:
        got = condition.downloads
        ranked = ranked_share_intervals(condition.amounts)
        split = "/".join(f"{100 * share.value:.0f}" for share in ranked) if ranked else NONE
        rows.append(
            (
                condition.publish,
                str(condition.n),
                f"{sum(download.ok for download in got)} / {sum(download.failed for download in got)}",
                estimate(condition.last_byte, seconds),
                estimate(condition.fairness, index) if condition.n > 1 else NONE,
                split,
                published_shares(condition.publish, condition.n),
            )
        )
    head = ("publish", "N", "ok / failed", "median time", "Jain", "shares, %", "published")
    return Table(
        head,
        rows,
        caption=f"{over(found)}: downloads, median time to the last byte, Jain's index and shares of the data sent "
        "(largest first)",
        text=(0,),
        console=True,
    )


def _share_blocks(steps: Sequence[Measured], found: Sequence[Condition]) -> list[Block]:
    blocks: list[Block] = []
    several = [condition for condition in found if condition.n > 1 and condition.amounts]
    if any(step.curves for step in steps):
        drawn = max(len(condition.repeats) for condition in found)
        more = f" The first {MOST_REPEATS} of {drawn} repeats." if drawn > MOST_REPEATS else ""
        caption = (
            "Cumulative data that each instance sent, counted by the kernel on its link at the router: everything, "
            f"with Tor's own traffic. One panel a step, r1 the first repeat.{more}"
        )
        blocks.append(Figure("cumulative", partial(cumulative, steps), caption))
    if several:
        caption = (
            f"Share of each instance in the data sent: {averaged(several)}; dots are single repeats, the dashed line "
            "is an even share."
        )
        blocks.append(Figure("shares", partial(figures.shares_by_instance, several), caption))
        caption = (
            f"Jain's fairness index of the data sent ({averaged(several)}): 1 where all instances send the same, 1/N "
            "where one sends everything."
        )
        draw = partial(
            figures.by_number, several, lambda condition: condition.fairness, "Jain's fairness index", best=1.0
        )
        blocks.append(Figure("fairness", draw, caption))
        blocks.append(_share_table(several))
    return blocks


def _share_table(several: Sequence[Condition]) -> Table:
    rows = []
    for condition in several:
        sent = share_intervals(condition.amounts)
        served = share_intervals([{n: float(c) for n, c in r.served.items()} for r in condition.repeats])
        for name in condition.instances:
            count = sum(repeat.served[name] for repeat in condition.repeats)
            rows.append(
                (
                    condition.publish,
                    str(condition.n),
                    name,
                    estimate(sent[name], percent) if name in sent else NONE,
                    estimate(served[name], percent) if name in served else NONE,
                    str(count),
                )
            )
    head = ("publish", "N", "instance", "share of data", "share of downloads", "downloads")
    return Table(head, rows, text=(0, 2), folded="Shares by instance")


def _time_blocks(found: Sequence[Condition]) -> list[Block]:
    timed = [condition for condition in found if condition.downloads]
    if not timed:
        return []
    count = sum(len(condition.downloads) for condition in timed)
    together = f"{plural(count, 'download')}, {over(timed)}"
    once = " N=1 is the same measurement in both panels." if _single_is_shared(timed) else ""
    return [
        Figure(
            "download-times",
            partial(figures.distribution, timed),
            f"Share of downloads that had finished within a time ({together}). "
            f"A curve that ends below 1 had failures.{once}",
        ),
        Figure(
            "download-median",
            partial(figures.by_number, timed, lambda condition: condition.last_byte, "median download time (s)"),
            f"Median download time to the last byte with 95 % interval ({together}).",
        ),
        Table(
            ("publish", "N", "downloads", "cut", "median to first byte", "median to last byte"),
            [
                (
                    condition.publish,
                    str(condition.n),
                    str(len(condition.downloads)),
                    str(sum(download.cut for download in condition.downloads)),
                    estimate(condition.first_byte, seconds),
                    estimate(condition.last_byte, seconds),
                )
                for condition in timed
            ],
        ),
    ]


def _hsdir_blocks(steps: Sequence[Measured]) -> list[Block]:
    read = [step for step in steps if step.readings]
    if not read:
        return []
    rows = [
        (
            step.step.name,
            reading.hsdir,
            f"{reading.start - step.step.start:+.1f} s",
            f"{reading.end - step.step.start:+.1f} s",
            reading.instance or "none",
            NONE if reading.revision is None else str(reading.revision),
        )
        for step in read
        for reading in step.readings
    ]
    return [
        Figure(
            "hsdirs",
            partial(hsdir_map, read),
            "Whose descriptor each responsible HSDir held, read back from it (HSFETCH) at the beginning and end of "
            "each step and from time to time between. A client picks one of them at random.",
        ),
        _split_table(read),
        Table(
            ("step", "HSDir", "from", "to", "instance", "revision"),
            rows,
            text=(0, 1, 4),
            folded=f"All readings with revision counters ({len(rows)})",
        ),
    ]


def _split_table(read: Sequence[Measured]) -> Table:
    """Whether the split of descriptors over HSDirs is the split of clients, as the paper explains its result."""
    rows = []
    for step in read:
        held = dict.fromkeys(step.instances, 0.0)
        for reading in step.readings:
            for name in reading.instances:
                if name in held:
                    held[name] += (reading.end - reading.start) / len(reading.instances)
        parts, sent = shares(held), shares(step.amounts)
        rows += [
            (step.step.name, name, percent(parts[name]), percent(sent.get(name, float("nan"))), str(step.served[name]))
            for name in step.instances
        ]
    head = ("step", "instance", "share of HSDirs held", "share of data sent", "downloads")
    return Table(head, rows, text=(0, 1), folded="Split of descriptors beside split of load, by step")


def _single_is_shared(found: Sequence[Condition]) -> bool:
    ways = {condition.publish for condition in found}
    return len(ways) > 1 and sum(condition.n == 1 for condition in found) == 1
