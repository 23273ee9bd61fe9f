"""How clients got over the death of an instance. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.measure.downloads import Recorded
from testbed.measure.reader import RunReader
from testbed.measure.stats import Estimate, Time, bootstrap_median, jain
from testbed.tor.report.trials import Introduction, Trial, grouped, served_by, trials


@dataclass(frozen=True, slots=True)
class Recovery:
    """One client in one trial. Times are seconds after the instance's end."""

    client: str
    holder: str
    """The instance that served it last before that; empty if none had."""
    affected: bool
    """That was the one which died."""
    recovered: Time
    """The last byte of the first complete download that was begun afterwards."""
    lost: int
    """Requests that failed until it was served again."""
    marks: tuple[Introduction, ...]
    """What it logged meanwhile, at times after the instance's end."""

    @property
    def stalls(self) -> tuple[Introduction, ...]:
        """Waits for an introduction point that had not noticed."""
        return tuple(mark for mark in self.marks if mark.what == "stalled")

    @property
    def stalled(self) -> float:
        """Seconds in such waits."""
        return sum(mark.seconds for mark in self.stalls)

    def count(self, what: str) -> int:
        """How often it logged this."""
        return sum(mark.what == what for mark in self.marks)


@dataclass(frozen=True)
class Failover:
    """One trial: N instances, one of which was ended."""

    trial: Trial
    victim: str
    ended: float
    """Seconds after the run's start."""

    @cached_property
    def recoveries(self) -> list[Recovery]:
        """Of every client."""
        by_client = grouped(self.trial.downloads, lambda download: download.client)
        return [self._recovery(client, got) for client, got in by_client.items()]

    @property
    def affected(self) -> list[Recovery]:
        """Of the clients that the dead instance had served."""
        return [recovery for recovery in self.recoveries if recovery.affected]

    @property
    def served_before(self) -> dict[str, int]:
        """Complete downloads by instance until its end."""
        return self._served([download for download in self.trial.downloads if download.ended <= self.ended])

    @property
    def served_after(self) -> dict[str, int]:
        """Complete downloads by instance that were begun afterwards."""
        return self._served([download for download in self.trial.downloads if download.started >= self.ended])

    @property
    def held(self) -> tuple[int, int]:
        """HSDirs that held the ended instance's descriptor when it ended, and HSDirs that were read."""
        last = {event.node: event.detail.get("instance") for event in self.trial.readings if event.t <= self.ended}
        return sum(instance == self.victim for instance in last.values()), len(last)

    @property
    def lost(self) -> int:
        """Downloads that failed after its end."""
        return sum(download.failed and download.ended > self.ended for download in self.trial.downloads)

    def _served(self, got: Sequence[Recorded]) -> dict[str, int]:
        counts: Counter[str] = served_by(got)
        return {name: counts[name] for name in self.trial.nodes}

    def _recovery(self, client: str, got: Sequence[Recorded]) -> Recovery:
        ended = self.ended
        before = [download for download in got if download.ok and download.ended <= ended]
        holder = before[-1].instance if before else ""
        after = [download for download in got if download.ok and download.started >= ended]
        last = max((download.ended for download in got), default=ended)
        time = Time(after[0].ended - ended) if after else Time(max(0.0, last - ended), observed=False)
        until = after[0].ended if after else math.inf
        failed = [download for download in got if download.failed and ended < download.ended <= until]
        marks = tuple(
            Introduction(mark.t - ended, client, mark.what, mark.seconds)
            for mark in self.trial.introductions
            if mark.client == client and ended <= mark.t <= until
        )
        return Recovery(client, holder, holder == self.victim, time, len(failed), marks)


@dataclass(frozen=True)
class Repeats:
    """All repeats of one condition."""

    n: int
    signal: str
    traffic: str
    """Seconds between two requests of each client for another service; ``none``: there was no such traffic."""
    failovers: tuple[Failover, ...]

    @property
    def name(self) -> str:
        """In short, for figures."""
        return f"N={self.n}, {self.manner}"

    @property
    def manner(self) -> str:
        """Signal and traffic."""
        return f"{self.signal}, " + ("quiet" if self.traffic == "none" else f"traffic {self.traffic}")

    @cached_property
    def times(self) -> list[list[Time]]:
        """Recovery times of affected clients, by repeat."""
        return [[recovery.recovered for recovery in failover.affected] for failover in self.failovers]

    @property
    def affected(self) -> list[Recovery]:
        """Affected clients of all repeats."""
        return [recovery for failover in self.failovers for recovery in failover.affected]

    @property
    def pool(self) -> list[Time]:
        """Recovery times of all affected clients."""
        return [time for repeat in self.times for time in repeat]

    @cached_property
    def median(self) -> Estimate:
        """Median recovery time, seconds."""
        return bootstrap_median(self.times)

    def fairness(self, *, after: bool) -> list[float]:
        """Jain's index of the downloads before, or among the survivors after, by repeat."""
        values = []
        for failover in self.failovers:
            served = failover.served_after if after else failover.served_before
            values.append(jain([count for name, count in served.items() if not (after and name == failover.victim)]))
        return values


def failovers(run: RunReader) -> list[Repeats]:
    """All conditions of a failover run, by number of instances and then as they were tried."""
    found = []
    for trial in trials(run, "failover"):
        ended = trial.moment("ended")
        if ended is not None:
            found.append(Failover(trial, ended.node, ended.t))
    groups = grouped(found, lambda item: (item.trial.n, item.trial.word("signal"), item.trial.word("traffic")))
    ordered = sorted(groups.items(), key=lambda item: int(item[0][0]))
    return [Repeats(n, signal, beside, tuple(group)) for (n, signal, beside), group in ordered]
