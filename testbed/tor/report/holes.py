"""How long a service could not be reached when its descriptors were those of an instance that had gone. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.measure.reader import Event, RunReader
from testbed.measure.stats import Estimate, Time, bootstrap_median, mean_interval
from testbed.tor.report.data import Reading, readings_by_step
from testbed.tor.report.trials import Trial, grouped, trials


@dataclass(frozen=True, slots=True)
class Gap:
    """What one client, or the fresh ones together, saw of an outage. Times are seconds after the instance's end."""

    who: str
    last: float | None
    """The last byte of the last complete download from the instance that ended."""
    first: float | None
    """The last byte of the first complete one from any other; None: there was none in the step."""

    @property
    def length(self) -> Time:
        """From the one to the other."""
        if self.first is None or self.last is None:
            return Time(math.inf, observed=False)
        return Time(self.first - self.last)

    @property
    def since_end(self) -> Time:
        """From the instance's end on."""
        return Time(math.inf, observed=False) if self.first is None else Time(self.first)


@dataclass(frozen=True)
class Hole:
    """One trial."""

    trial: Trial
    victim: str
    ended: float
    """Seconds after the run's start; of what follows: after this."""
    republish: float
    """When others were made to publish."""
    published: float | None
    """When all uploads had been answered; None if that was not reached."""
    readings: tuple[Reading, ...]
    uploads: tuple[Event, ...]
    """``onion_published`` of the instances that published during the step."""

    @cached_property
    def clients(self) -> list[Gap]:
        """What each client saw."""
        by_client = grouped((item for item in self.trial.downloads if item.ok), lambda download: download.client)
        names = dict.fromkeys(download.client for download in self.trial.downloads)
        return [self._gap(name, [(item.instance, item.ended) for item in by_client.get(name, ())]) for name in names]

    @cached_property
    def fresh(self) -> Gap:
        """What fresh clients saw; the first success is the earliest of any of them."""
        good = [(item.instance, item.last_byte) for item in self.trial.fresh if item.ok]
        return self._gap("fresh clients", [(name, at) for name, at in good if at is not None])

    @property
    def service(self) -> Gap:
        """What anybody saw: from the last success of all to the first."""
        gaps = [*self.clients, self.fresh]
        last = [gap.last for gap in gaps if gap.last is not None]
        first = [gap.first for gap in gaps if gap.first is not None]
        return Gap("anybody", max(last, default=None), min(first, default=None))

    @property
    def lost(self) -> int:
        """Downloads that failed after the instance's end."""
        return sum(download.failed and download.ended > self.ended for download in self.trial.downloads)

    @property
    def acknowledged(self) -> int:
        """Uploads that HSDirs took."""
        return sum(len(event.detail.get("acknowledged", ())) for event in self.uploads)

    @property
    def refused(self) -> int:
        """Uploads that HSDirs refused."""
        return sum(len(event.detail.get("refused", ())) for event in self.uploads)

    @property
    def holders(self) -> dict[str, str]:
        """Instance by HSDir at the step's end."""
        return {reading.hsdir: reading.instance for reading in self.readings}

    @property
    def revisions(self) -> set[int]:
        """Revision counters that HSDirs held at the step's end."""
        last = {reading.hsdir: reading.revision for reading in self.readings}
        return {revision for revision in last.values() if revision is not None}

    def _gap(self, who: str, good: Sequence[tuple[str, float]]) -> Gap:
        before = [at - self.ended for name, at in good if name == self.victim]
        after = [at - self.ended for name, at in good if name != self.victim and at > self.ended]
        return Gap(who, max(before, default=None), min(after, default=None))


@dataclass(frozen=True)
class Holes:
    """All repeats of one condition."""

    n: int
    condition: str
    """What else is the same in all of them: the signal, or the way to publish."""
    repeats: tuple[Hole, ...]

    @property
    def name(self) -> str:
        """In short, for figures."""
        return f"N={self.n}, {self.condition}"

    @property
    def republish(self) -> Estimate:
        """When the others were made to publish, seconds after the end."""
        return mean_interval([hole.republish for hole in self.repeats])

    @property
    def service(self) -> Estimate:
        """From the last success of anybody to the first; infinite if there was none in a repeat."""
        lengths = [hole.service.length.seconds for hole in self.repeats]
        if any(math.isinf(length) for length in lengths):
            return Estimate(math.inf, n=len(lengths))
        return mean_interval(lengths)

    @cached_property
    def clients(self) -> Estimate:
        """Median over clients of the time from the instance's end to their first success."""
        return bootstrap_median([[gap.since_end for gap in hole.clients] for hole in self.repeats])

    @property
    def times(self) -> list[Time]:
        """Of all clients in all repeats."""
        return [gap.since_end for hole in self.repeats for gap in hole.clients]

    @property
    def fresh(self) -> list[float]:
        """First success of a fresh client, by repeat."""
        return [hole.fresh.since_end.seconds for hole in self.repeats]


def holes(run: RunReader, experiment: str, condition: str) -> list[Holes]:
    """All conditions of an experiment; ``condition`` is the detail of its steps that tells them apart beside N."""
    found = trials(run, experiment)
    if not found:
        return []
    readings = readings_by_step(run, {trial.step.name: trial.step.end for trial in found})
    uploads = run.events("onion_published")
    made = []
    for trial in found:
        ended, again, published = (trial.moment(what) for what in ("ended", "republish", "published"))
        if ended is None or again is None:  # it was cut before that
            continue
        made.append(
            Hole(
                trial,
                ended.node,
                ended.t,
                again.t - ended.t,
                None if published is None else published.t - ended.t,
                tuple(readings[trial.step.name]),
                tuple(event for event in uploads if ended.t <= event.t <= trial.step.end),
            )
        )
    groups = grouped(made, lambda hole: (hole.trial.n, hole.trial.word(condition)))
    ordered = sorted(groups.items(), key=lambda item: int(item[0][0]))
    return [Holes(n, word, tuple(group)) for (n, word), group in ordered]
