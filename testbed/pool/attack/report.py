"""The report's section on pools under attack: a table, the trade-off, and how long servers were exposed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.measure.stats import Estimate
from testbed.pool.attack.model import Interval, Summary, expected_of, expected_share, summarise
from testbed.report.blocks import Block, Figure, Section, Table, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader

EVENT = "pool_attack"
"""Kind of the event that holds what happened to one pool in one repeat."""


@dataclass(frozen=True)
class Trial:
    """One pool, all repeats."""

    pool: str
    intruder: float
    """Mean time that he needs, seconds of the pool's time."""
    timer: float
    """Longest time between two changes; infinite if the server never changes."""
    detection: bool
    intervals: Sequence[Interval]
    asked: int
    failed: int

    @property
    def summary(self) -> Summary:
        """Its figures."""
        return summarise(self.intervals)


def trials(run: RunReader) -> list[Trial]:
    """What the run has of each pool, by how often the server changes."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in run.events(EVENT):
        found.setdefault(str(event.detail["pool"]), []).append(event.detail)
    made = [
        Trial(
            pool,
            float(rows[0]["intruder"]),
            math.inf if rows[0]["timer"] is None else float(rows[0]["timer"]),
            bool(rows[0]["detection"]),
            [Interval(**interval) for row in rows for interval in row["intervals"]],
            sum(row["asked"] for row in rows),
            sum(len(row["errors"]) + len(row["wrong"]) for row in rows),
        )
        for pool, rows in found.items()
    ]
    return sorted(made, key=lambda trial: (trial.detection, trial.timer))


def sections(run: RunReader) -> list[Section]:
    """One section if the run attacked pools."""
    seen = trials(run)
    if not seen:
        return []
    blocks: list[Block] = [
        Text(
            f"An intruder needs {seen[0].intruder:g} s on average for each new server in service. Times are those of "
            "the pool. A server is exposed while it serves, and compromised from when the intruder has changed its "
            "page until it has given up the service; then it is made anew."
        ),
        table(seen),
        Figure(
            "pool-attack",
            lambda: trade_off(seen),
            "Left: share of the time of service under compromise against the time after which the server changes; the "
            "line is what an exponential intruder should reach, bars are 95 % intervals over stretches of service. "
            "Right: how long servers were exposed; the run cuts the first and last of each pool.",
        ),
    ]
    if any(len(trial.intervals) < 10 for trial in seen):
        blocks.append(Text("Pools with fewer than ten stretches of service say little: run longer.", kind="note"))
    return [Section("Pools under attack", blocks)]


def table(seen: Sequence[Trial]) -> Table:
    """A row for each pool."""
    rows = []
    for trial in seen:
        summary = trial.summary
        expected = expected_of([interval.exposure for interval in trial.intervals], trial.intruder)
        when = "never" if math.isinf(trial.timer) else f"{trial.timer:g} s" + (" or seen" if trial.detection else "")
        rows.append(
            (
                trial.pool,
                when,
                str(summary.intervals),
                f"{summary.exposure.value:.1f}",
                _percent(summary.share),
                "" if trial.detection else f"{expected:.1%}",
                f"{summary.compromises}" + (f" ({summary.detected} seen)" if trial.detection else ""),
                f"{summary.leaked} of {summary.requests}",
                str(trial.failed),
            )
        )
    return Table(
        ("pool", "changes", "stretches", "exposure, s", "compromised", "expected", "times", "leaked", "failed"),
        rows,
        caption="By how often the server changes: stretches of service and their mean length; share of the time of "
        "service under compromise, with its 95 % interval, and what an exponential intruder should reach in stretches "
        "of these lengths; how often he did it; requests that were answered meanwhile; requests that failed",
        text=(0, 1),
        console=True,
    )


def trade_off(seen: Sequence[Trial]) -> Drawing:
    """Both panels; see the caption."""
    from testbed.report.figures import DASHES, GREY, MARKERS, PAGE, color, drawing, entries, legend_above

    figure = drawing(PAGE, 2.7)
    left, right = figure.subplots(1, 2)
    timed = [trial for trial in seen if not trial.detection and math.isfinite(trial.timer)]
    longest = max((trial.timer for trial in seen if math.isfinite(trial.timer)), default=1.0)
    x = [longest * number / 100 for number in range(1, 111)]
    left.plot(x, [100 * expected_share(seen[0].intruder, at) for at in x], color=GREY, label="expected")
    groups = [("measured", timed), ("with detectors", [t for t in seen if t.detection and math.isfinite(t.timer)])]
    for index, (label, group) in enumerate(groups):
        if not group:
            continue
        shares = [trial.summary.share for trial in group]
        left.errorbar(
            [trial.timer for trial in group],
            [100 * share.value for share in shares],
            yerr=[[100 * _below(share) for share in shares], [100 * _above(share) for share in shares]],
            color=color(index),
            marker=MARKERS[index],
            linestyle="none",
            label=label,
        )
    left.set(xlabel="server changes after (s)", ylabel="time under compromise (%)", xlim=(0, None), ylim=(0, 100))
    for index, trial in enumerate(seen):
        lengths = sorted(interval.exposure for interval in trial.intervals)
        steps = [number / len(lengths) for number in range(len(lengths) + 1)]
        right.step(
            [0, *lengths],
            steps,
            where="post",
            color=color(index),
            linestyle=DASHES[index % len(DASHES)],
            label=trial.pool,
        )
    right.set(xlabel="exposure (s)", ylabel="share of stretches", xlim=(0, None), ylim=(0, 1.02))
    legend_above(figure, entries([left, right]))
    return figure


def _below(share: Estimate) -> float:
    return 0.0 if share.low is None else max(0.0, share.value - share.low)


def _above(share: Estimate) -> float:
    return 0.0 if share.high is None else max(0.0, share.high - share.value)


def _percent(share: Estimate) -> str:
    if math.isnan(share.value):
        return ""
    if share.low is None or share.high is None:
        return f"{share.value:.1%}"
    return f"{share.value:.1%} ({share.low:.0%} to {share.high:.0%})"
