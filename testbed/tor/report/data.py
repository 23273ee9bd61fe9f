"""What an onion run measured, by step and by condition. Pure: from a run's events and samples to numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from testbed.measure.downloads import Recorded, downloads
from testbed.measure.reader import RunReader, Sample, Step
from testbed.measure.stats import Estimate, Time, bootstrap_median, growth, jain_interval, shares
from testbed.report.numbers import natural, plural
from testbed.tor.names import JOINT

BYTES = "bytes_from"
TRAFFIC_SHARE = 0.01
"""An instance whose answers carried no name got traffic if it sent more than this share of the bytes: an idle one
sends some too, for its circuits."""


@dataclass(frozen=True)
class Reading:
    """Which instance's descriptor an HSDir held from ``start`` to ``end``, as far as the readings tell."""

    hsdir: str
    start: float
    end: float
    instance: str
    """Empty: none. ``a+b`` of a descriptor with introduction points of both."""
    revision: int | None

    @property
    def instances(self) -> list[str]:
        """All whose introduction points are in it; empty for none."""
        return [name for name in self.instance.split(JOINT) if name]


@dataclass(frozen=True)
class Measured:
    """One step: a number of instances, published in one way, once."""

    step: Step
    instances: tuple[str, ...]
    """Node names of those that ran."""
    downloads: tuple[Recorded, ...] = ()
    bytes: dict[str, float] = field(default_factory=dict)
    """What each sent during the step; empty where that was not sampled."""
    curves: dict[str, list[Sample]] = field(default_factory=dict)
    """Samples of the cumulative count of each around the step."""
    readings: tuple[Reading, ...] = ()

    @property
    def n(self) -> int:
        """Number of instances."""
        return int(self.step.detail["instances"])

    @property
    def publish(self) -> str:
        """How they published."""
        return str(self.step.detail.get("publish", ""))

    @cached_property
    def served(self) -> dict[str, int]:
        """Complete downloads by the instance that served them."""
        counts = Counter(download.instance for download in self.downloads if download.ok and download.instance)
        return {name: counts[name] for name in self.instances}

    @property
    def amounts(self) -> dict[str, float]:
        """What the shares are of: bytes where they were counted, else downloads."""
        return self.bytes or {name: float(count) for name, count in self.served.items()}

    @property
    def with_traffic(self) -> int:
        """How many instances got traffic: served a download, or sent more than an idle one does."""
        if any(self.served.values()):
            return sum(count > 0 for count in self.served.values())
        return sum(share > TRAFFIC_SHARE for share in shares(self.bytes).values())


@dataclass(frozen=True)
class Condition:
    """All repeats of one number of instances published in one way."""

    publish: str
    n: int
    repeats: tuple[Measured, ...]

    @property
    def instances(self) -> tuple[str, ...]:
        """Node names."""
        return self.repeats[0].instances

    @property
    def downloads(self) -> list[Recorded]:
        """Of all repeats."""
        return [download for repeat in self.repeats for download in repeat.downloads]

    @property
    def times(self) -> list[list[Time]]:
        """Download times by repeat."""
        return [[download.to_last_byte() for download in repeat.downloads] for repeat in self.repeats]

    @property
    def amounts(self) -> list[dict[str, float]]:
        """What the shares are of, by repeat."""
        return [repeat.amounts for repeat in self.repeats if any(repeat.amounts.values())]

    @cached_property
    def last_byte(self) -> Estimate:
        """Median download time, seconds."""
        return bootstrap_median(self.times)

    @cached_property
    def first_byte(self) -> Estimate:
        """Median time to the first byte, seconds."""
        return bootstrap_median([[d.to_first_byte() for d in repeat.downloads] for repeat in self.repeats])

    @cached_property
    def fairness(self) -> Estimate:
        """Jain's index over the instances."""
        return jain_interval(self.amounts)


def measured(run: RunReader) -> list[Measured]:
    """The steps that ran instances, in the order of time."""
    steps = [step for step in run.steps() if isinstance(step.detail.get("instances"), int)]
    got: dict[str, list[Recorded]] = defaultdict(list)
    for download in downloads(run):
        got[download.step].append(download)
    counters: dict[str, list[Sample]] = defaultdict(list)
    for sample in run.samples(BYTES):
        counters[sample.node].append(sample)
    names = _instance_names(run, counters)
    readings = readings_by_step(run, {step.name: step.end for step in steps})
    return [_measured(step, names, got[step.name], counters, readings[step.name]) for step in steps]


def conditions(steps: Sequence[Measured]) -> list[Condition]:
    """Steps by condition, ways to publish in the order in which they were first tried, then by number."""
    found: dict[tuple[str, int], list[Measured]] = defaultdict(list)
    for step in steps:
        found[step.publish, step.n].append(step)
    order = list(dict.fromkeys(step.publish for step in steps))
    keys = sorted(found, key=lambda key: (order.index(key[0]), key[1]))
    return [Condition(publish, n, tuple(found[publish, n])) for publish, n in keys]


def _measured(
    step: Step,
    names: Sequence[str],
    got: Sequence[Recorded],
    counters: dict[str, list[Sample]],
    readings: Sequence[Reading],
) -> Measured:
    instances = _instances(step, names, got)
    curves = {name: counters[name] for name in instances if name in counters}
    sent = {
        name: growth([s.t for s in samples], [s.value for s in samples], step.start, step.end)
        for name, samples in curves.items()
    }
    return Measured(step, instances, tuple(got), sent, curves, tuple(readings))


def _instances(step: Step, names: Sequence[str], got: Sequence[Recorded]) -> tuple[str, ...]:
    """The first N of the service, unless the step says which."""
    told = step.detail.get("nodes")
    if isinstance(told, list):
        return tuple(str(name) for name in told)
    known = [*names, *sorted({download.instance for download in got if download.instance} - set(names), key=natural)]
    return tuple(known[: int(step.detail["instances"])])


def _instance_names(run: RunReader, counters: dict[str, list[Sample]]) -> list[str]:
    """Nodes of the plan's onion services in its order; without a plan, whatever was counted."""
    nodes = (run.manifest.get("plan") or {}).get("nodes", ())
    planned = [str(node["name"]) for node in nodes if node.get("subsystem") == "onions"]
    return planned or sorted(counters, key=natural)


def over(found: Sequence[Condition]) -> str:
    """How many repeats these have: ``3 repeats``."""
    counts = sorted({len(condition.repeats) for condition in found})
    return plural(counts[0], "repeat") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} repeats"


def averaged(found: Sequence[Condition]) -> str:
    """What a figure of these shows, for its caption."""
    if all(len(condition.repeats) == 1 for condition in found):
        return "one repeat, so there is no interval"
    return f"mean over {over(found)} with 95 % interval"


def readings_by_step(run: RunReader, ends: dict[str, float]) -> dict[str, list[Reading]]:
    """Readings by step; each holds until the next of the same HSDir, the last until the step's end."""
    found: dict[str, list[Reading]] = defaultdict(list)
    last: dict[tuple[str, str], Reading] = {}

    def finish(step: str, reading: Reading, end: float) -> None:
        found[step].append(Reading(reading.hsdir, reading.start, end, reading.instance, reading.revision))

    for event in run.events("hsdir"):
        step, revision = str(event.detail.get("step", "")), event.detail.get("revision")
        now = Reading(
            event.node,
            event.t,
            event.t,
            str(event.detail.get("instance") or ""),
            revision if isinstance(revision, int) else None,
        )
        before = last.get((step, event.node))
        if before and (before.instance, before.revision) == (now.instance, now.revision):
            continue  # goes on
        if before:
            finish(step, before, now.start)
        last[step, event.node] = now
    for (step, _), reading in last.items():
        finish(step, reading, max(ends.get(step, reading.start), reading.start))
    return found
