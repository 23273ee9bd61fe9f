"""What availability probes saw: answers, and the outages between them with what is certain of their length."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.measure.outages import Attempt, Edge, Outage, outages
from testbed.measure.reader import Event, RunReader, Sample
from testbed.report.history import finite

_SLACK = 0.001
"""Seconds: an event's times are rounded."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An outage as the run has it, times in seconds since the run's start. None: that edge was not seen."""

    label: str
    """Who asked whom: ``a>b``."""
    start: float
    """The best guess; where the beginning was not seen, the first question that failed."""
    end: float | None
    seconds: float
    shortest: float
    longest: float | None
    lost: int
    start_range: tuple[float, float] | None = None
    end_range: tuple[float, float] | None = None

    @property
    def certain(self) -> tuple[float, float]:
        """When it certainly was: empty where the two do not come in this order."""
        first = self.start_range[1] if self.start_range else self.start
        last = self.end_range[0] if self.end_range else self.start + self.seconds
        return first, last

    @property
    def possible(self) -> tuple[float, float]:
        """When it may have been."""
        first = self.start_range[0] if self.start_range else self.start
        last = self.end_range[1] if self.end_range else self.start + self.seconds
        return first, max(first, last)


@dataclass(frozen=True, slots=True)
class Watch:
    """One call of an availability probe. ``finished`` is false if the run was cut before it told what it saw."""

    label: str
    by: str
    """``ping``, ``tcp`` or ``http``; empty where it is not known."""
    started: float
    ended: float
    samples: Sequence[Sample]
    """Seconds to the answer of each question, at the time of the question; NaN where there was no good one."""
    gaps: tuple[Gap, ...] = ()
    missed: int = 0
    finished: bool = True

    @property
    def lost(self) -> int:
        """Questions without a good answer."""
        return sum(not math.isfinite(sample.value) for sample in self.samples)


def watches(run: RunReader) -> tuple[list[Watch], list[Gap]]:
    """All availability probes, and the outages that belong to none of them.

    Outages are those that the probe recorded. Of a run that was cut before, they are worked out from its samples.
    """
    by_label: dict[str, list[Sample]] = defaultdict(list)
    for sample in run.samples("answer_seconds"):
        by_label[sample.node].append(sample)
    calls: dict[str, list[Event]] = defaultdict(list)
    for event in run.events("probe"):
        if event.detail.get("probe") == "availability":
            calls[f"{event.node}>{event.detail.get('target', '')}"].append(event)
    told = [_told(event) for event in run.events("outage")]
    found: list[Watch] = []
    loose: list[Gap] = []
    for label in dict.fromkeys([*by_label, *calls]):
        found += _of_label(label, by_label[label], calls[label])
    taken: list[list[Gap]] = [[] for _ in found]
    for gap in told:
        mine = [index for index, watch in enumerate(found) if _belongs(gap, watch)]
        (taken[mine[0]] if mine else loose).append(gap)
    complete = [
        replace(watch, gaps=tuple(gaps) if gaps else _worked_out(watch))
        for watch, gaps in zip(found, taken, strict=True)
    ]
    return sorted(complete, key=lambda watch: watch.started), loose


def _of_label(label: str, samples: Sequence[Sample], calls: Iterable[Event]) -> list[Watch]:
    found: list[Watch] = []
    left: list[Sample] = []
    after = 0
    for call in sorted(calls, key=_started):
        started, ended = _started(call), finite(call.detail.get("ended")) or call.t
        first = max(after, bisect_left(samples, started - _SLACK, key=_time))
        last = max(first, bisect_right(samples, ended + _SLACK, key=_time))
        left += samples[after:first]
        after = last
        missed = int(finite(call.detail.get("missed")) or 0)
        by = str(call.detail.get("by") or "")
        found.append(Watch(label, by, started, ended, samples[first:last], missed=missed))
    left += samples[after:]
    if left:
        found.append(Watch(label, "", left[0].t, left[-1].t, left, finished=False))
    return found


def _time(sample: Sample) -> float:
    return sample.t


def _started(call: Event) -> float:
    started = finite(call.detail.get("started"))
    return call.t if started is None else started


def _belongs(gap: Gap, watch: Watch) -> bool:
    return gap.label == watch.label and watch.started - _SLACK <= gap.start <= watch.ended + _SLACK


def _told(event: Event) -> Gap:
    detail: dict[str, Any] = event.detail
    start = finite(detail.get("start"))
    return Gap(
        f"{event.node}>{detail.get('target', '')}",
        event.t if start is None else start,
        finite(detail.get("end")),
        max(0.0, finite(detail.get("seconds")) or 0.0),
        max(0.0, finite(detail.get("shortest")) or 0.0),
        finite(detail.get("longest")),
        int(finite(detail.get("lost")) or 0),
        _range(detail.get("start_range")),
        _range(detail.get("end_range")),
    )


def _range(value: object) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, last = finite(value[0]), finite(value[1])
    return None if first is None or last is None or last < first else (first, last)


def _worked_out(watch: Watch) -> tuple[Gap, ...]:
    """From the samples alone; when a question was given up is not among them, which only makes edges wider."""
    attempts = [
        Attempt(sample.t, sample.t + max(0.0, sample.value), True)
        if math.isfinite(sample.value)
        else Attempt(sample.t, math.inf, False)
        for sample in watch.samples
    ]
    return tuple(_gap(watch.label, outage) for outage in outages(attempts))


def _gap(label: str, outage: Outage) -> Gap:
    start, end = outage.start, outage.end
    return Gap(
        label,
        start.middle if start else outage.first_lost,
        end.middle if end else None,
        outage.seconds,
        outage.shortest,
        outage.longest,
        outage.lost,
        _ends(start),
        _ends(end),
    )


def _ends(edge: Edge | None) -> tuple[float, float] | None:
    return (edge.earliest, edge.latest) if edge else None
