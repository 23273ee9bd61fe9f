"""The figures of a run that another run may have too: values by repeat, for each set of conditions."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from testbed.measure.downloads import Recorded, downloads
from testbed.measure.reader import Event, RunReader, Sample, Step
from testbed.measure.stats import Estimate, Time, bootstrap_median, growth, jain, median_time, shares
from testbed.report.numbers import natural

Unit = Literal["s", "share", "index", "bytes", "bit/s", "count"]
OUTSIDE = "outside of steps"
"""The conditions of what was measured in no step; that counts as one repeat."""
_NOT_CONDITIONS = {"repeat", "nodes", "expect_failures"}
_SLACK = 0.001


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two figures the same one."""

    condition: str
    name: str
    unit: Unit


@dataclass(frozen=True)
class Figure:
    """A figure of one run: its values by repeat."""

    key: Key
    repeats: tuple[tuple[Time, ...], ...]

    @cached_property
    def by_repeat(self) -> list[float]:
        """One value a repeat, its median: repeats are what a test may count."""
        return [median_time(repeat) for repeat in self.repeats]

    @cached_property
    def estimate(self) -> Estimate:
        """Median of all values with its interval; none of a single value."""
        return bootstrap_median(self.repeats)


Found = Iterator[tuple[str, Unit, list[Time]]]


def figures(run: RunReader) -> dict[Key, Figure]:
    """All figures of a run, in the order of its steps. Steps that were cut are left out."""
    return _Collector(run).figures()


def condition(step: Step) -> str:
    """What a step and its repeats have in common, in words: ``instances=3, publish=naive``, or the step's name."""
    told = {key: value for key, value in step.detail.items() if key not in _NOT_CONDITIONS}
    if told:
        return ", ".join(f"{key}={_word(value)}" for key, value in told.items())
    return re.sub(rf"[-_ ]?r?{step.repeat}$", "", step.name) or step.name


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _Collector:
    def __init__(self, run: RunReader) -> None:
        self._run = run
        self._series: dict[tuple[str, str], list[Sample]] = {}
        self._counted: dict[str, list[Sample]] = defaultdict(list)
        for sample in run.samples("bytes_from"):
            self._counted[sample.node].append(sample)
        self._downloads: dict[str, list[Recorded]] = defaultdict(list)
        for download in downloads(run):
            self._downloads[download.step].append(download)
        self._probes = run.events("probe")
        self._outages = run.events("outage")

    def figures(self) -> dict[Key, Figure]:
        """See ``figures``."""
        found: dict[Key, dict[str, list[Time]]] = defaultdict(lambda: defaultdict(list))
        steps = [step for step in self._run.steps() if step.complete]
        inside: set[int] = set()
        for step in steps:
            events = [event for event in self._probes if step.start <= _started(event) <= step.end]
            inside.update(event.id for event in events)
            for name, unit, values in (*self._of_downloads(step), *self._of_bytes(step), *self._of_probes(events)):
                found[Key(condition(step), name, unit)][step.name].extend(values)
        cut = [step for step in self._run.steps() if not step.complete]
        outside = [
            event
            for event in self._probes
            if event.id not in inside and not any(step.start <= _started(event) <= step.end for step in cut)
        ]
        for name, unit, values in self._of_probes(outside):
            found[Key(OUTSIDE, name, unit)][""].extend(values)
        return {
            key: Figure(key, tuple(tuple(values) for values in repeats.values() if values))
            for key, repeats in found.items()
            if any(repeats.values())
        }

    def _of_downloads(self, step: Step) -> Found:
        got = self._downloads.get(step.name, [])
        if not got:
            return
        yield "download time", "s", [download.to_last_byte() for download in got]
        yield "time to first byte", "s", [download.to_first_byte() for download in got]
        decided = [download for download in got if not download.cut]
        if decided:
            yield "failed downloads", "share", [Time(sum(d.failed for d in decided) / len(decided))]
        if step.seconds > 0:
            yield "goodput", "bit/s", [Time(8 * sum(d.bytes for d in got if d.ok) / step.seconds)]

    def _of_bytes(self, step: Step) -> Found:
        amounts = self._amounts(step)
        if len(amounts) > 1 and any(amounts.values()):
            yield "Jain's index", "index", [Time(jain(list(amounts.values())))]
            yield "largest share", "share", [Time(max(shares(amounts).values()))]
        if self._counted and any(amounts.values()):
            yield "bytes sent", "bytes", [Time(sum(amounts.values()))]

    def _amounts(self, step: Step) -> dict[str, float]:
        """What each server of a step sent; without counters, how many downloads it served."""
        counted = {
            name: growth([s.t for s in samples], [s.value for s in samples], step.start, step.end)
            for name, samples in self._counted.items()
        }
        if not counted:
            for download in self._downloads.get(step.name, ()):
                if download.ok and download.instance:
                    counted[download.instance] = counted.get(download.instance, 0) + 1
        nodes, number = step.detail.get("nodes"), step.detail.get("instances")
        names = sorted(counted, key=natural)
        if isinstance(nodes, list):
            names = [str(name) for name in nodes]
        elif isinstance(number, int):
            # those that were not started sent nothing; of those that were, one that served nobody counts
            names = [*names, *(f"({index})" for index in range(len(names), number))][:number]
        return {name: counted.get(name, 0.0) for name in names}

    def _of_probes(self, events: Sequence[Event]) -> Found:
        for event in events:
            detail, who = event.detail, f"{event.node}>{event.detail.get('target', '')}"
            if "failed" in detail:
                continue  # it was interrupted
            match detail.get("probe"):
                case "ping":
                    rtts = self._within("ping_rtt", who, event)
                    if rtts:
                        yield f"ping {who}", "s", rtts
                    if detail.get("sent"):
                        yield f"ping loss {who}", "share", [Time(1 - detail["received"] / detail["sent"])]
                case "tcp":
                    yield f"TCP connect {who}", "s", [_time(detail.get("seconds"))]
                case "http":
                    yield f"HTTP first byte {who}", "s", [_time(detail.get("first_byte"))]
                    yield f"HTTP total {who}", "s", [_time(detail.get("total"))]
                case "dns":
                    yield f"DNS {detail.get('name', '')} {who}", "s", [_time(detail.get("seconds"))]
                case "throughput" if detail.get("outcome") == "ok":
                    yield f"throughput {detail.get('protocol', '')} {who}", "bit/s", [Time(float(detail["bps"]))]
                case "availability" if detail.get("asked"):
                    yield from self._of_outages(event, who)

    def _of_outages(self, event: Event, who: str) -> Found:
        mine = [
            outage
            for outage in self._outages
            if outage.node == event.node
            and outage.detail.get("target") == event.detail.get("target")
            and _started(event) - _SLACK <= float(outage.detail.get("start") or 0.0) <= _ended(event) + _SLACK
        ]
        yield f"requests lost {who}", "share", [Time(event.detail["lost"] / event.detail["asked"])]
        yield f"outages {who}", "count", [Time(float(len(mine)))]
        yield f"time out of service {who}", "s", [Time(sum(float(outage.detail["seconds"]) for outage in mine))]

    def _within(self, series: str, node: str, event: Event) -> list[Time]:
        if (series, node) not in self._series:
            self._series[series, node] = self._run.samples(series, node)
        samples = self._series[series, node]
        first = bisect_left(samples, _started(event) - _SLACK, key=lambda sample: sample.t)
        last = bisect_right(samples, _ended(event) + _SLACK, key=lambda sample: sample.t)
        return [_time(None if math.isnan(sample.value) else sample.value) for sample in samples[first:last]]


def _time(value: float | None) -> Time:
    """A time, or that there was no answer."""
    return Time(math.inf, observed=False) if value is None else Time(float(value))


def _started(event: Event) -> float:
    return float(event.detail.get("started", event.t))


def _ended(event: Event) -> float:
    return float(event.detail.get("ended", event.t))
