"""Instances of one onion service that take turns, by the schedule and the competition of the pools.

One instance serves. When a migration is due, the winner is made anew and publishes; when the HSDirs have acknowledged
its descriptor the old one goes on for a while, for clients that have its descriptor, and is then ended. So for that
while two serve: unlike a service address, a descriptor that clients keep cannot be moved from one server to another.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.pool.clock import SECOND
from testbed.pool.competition import Candidate, Competition, Policy
from testbed.pool.scheduler import Due, Schedule
from testbed.progress import Progress, Silent
from testbed.tor.instances import end
from testbed.tor.node import make_node
from testbed.tor.onions import OnionServices


@dataclass(frozen=True)
class Move:
    """One migration. ``published`` and ``ended`` are ``time.monotonic()`` values."""

    due: Due
    leaving: str
    to: str
    handover: float
    """Real seconds from when it was due, or was begun if that was later, until all HSDirs had acknowledged."""
    published: float
    ended: float
    """When the old one was sent its signal."""
    held: int | None
    """Responsible HSDirs that had the new one's descriptor just before the end of the old one; None if not read."""
    hsdirs: int
    revisions: dict[str, int]
    """The revision counter at each HSDir then."""


class OnionPool:
    """A service whose instances take turns."""

    def __init__(
        self,
        onions: OnionServices,
        service: str,
        schedule: Schedule,
        *,
        speed: float = 1,
        policy: Policy | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``speed``: seconds of the schedule in a real second. TestbedError if the service has one instance only."""
        names = onions.instances(service)
        if len(names) < 2:
            raise TestbedError(
                f"{service!r} has one instance; nobody could take over from it",
                where=f"onions.{service}.instances",
                remedy="set it to 2 or more",
            )
        self.onions, self.service, self.schedule, self.speed = onions, service, schedule, speed
        self.policy = policy or Competition()
        self._progress = progress or Silent()
        self._ready = dict.fromkeys(names[1:], 0)
        """Since when (pool time) each that does not serve could."""
        self.holder = names[0]
        self._began = 0.0
        self._last = 0
        self._epoch = 0

    def begin(self) -> None:
        """Start and publish the first one; the pool's time begins when it serves."""
        self.onions.start(self.service, 1, "naive", progress=self._progress)
        self._began = time.monotonic()

    def now(self) -> int:
        """Pool time, microseconds."""
        return int((time.monotonic() - self._began) * self.speed * SECOND)

    def real(self, pool_time: int) -> float:
        """A pool time on the monotonic clock."""
        return self._began + pool_time / SECOND / self.speed

    def next(self) -> Due:
        """The next migration. It is overdue if the time that it was due at has passed."""
        return self.schedule.next(self._last)

    def move(self, due: Due, *, overlap: float, number: int) -> Move:
        """Let the next one take over, and end the old one by signal ``number``, ``overlap`` seconds after the HSDirs
        have acknowledged the new one's descriptor. Raises as ``OnionServices.join`` does; the old one goes on then.
        """
        begun = max(time.monotonic(), self.real(due.at))
        leaving, service = self.holder, self.service
        to = self.policy.winner(
            [Candidate(name, since, 0) for name, since in self._ready.items()], leaving, self._epoch
        )
        _clear(self.onions, to)
        self.onions.join(service, to, progress=self._progress)
        published = time.monotonic()
        self._last, self._epoch = self.now(), self._epoch + 1
        held, revisions, hsdirs = self._holding(to)
        time.sleep(max(0.0, published + overlap - time.monotonic()))
        ended = end(self.onions.lab, [leaving], number)
        _clear(self.onions, leaving)
        del self._ready[to]
        self._ready[leaving] = self.now()
        self.holder = to
        return Move(due, leaving, to, published - begun, published, ended, held, hsdirs, revisions)

    def _holding(self, instance: str) -> tuple[int | None, dict[str, int], int]:
        """How many HSDirs hold its descriptor, all their revision counters, and how many there are."""
        with contextlib.suppress(TestbedError):  # a reading that fails on a busy machine is no reason to end the pool
            entries = self.onions.hsdir_map(self.service)
            revisions = {entry.nickname: entry.revision for entry in entries if entry.revision is not None}
            return sum(entry.instance == instance for entry in entries), revisions, len(entries)
        return None, {}, 0


def _clear(onions: OnionServices, instance: str) -> None:
    """Remove the files that an instance serves; its tor's files are made anew with each start anyway."""
    shutil.rmtree(make_node(onions.lab, instance).paths.node / "www", ignore_errors=True)
