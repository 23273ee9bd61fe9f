"""Instances of one onion service that take turns, by the schedule and the competition of the pools.

One instance serves. When a migration is due, the winner is made anew and publishes; when the HSDirs have acknowledged
its descriptor the old one publishes no more, goes on for a while, takes leave, and is ended. So for that while two
serve: unlike a service address, a descriptor that clients keep cannot be moved from one server to another.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import Candidate, Competition, Policy
from testbed.pool.schedule.scheduler import Schedule
from testbed.progress import Progress, Silent
from testbed.runtime.base import wait_all_gone
from testbed.tor.distribute.handover import publish_no_more
from testbed.tor.node import make_node
from testbed.tor.onion.instances import GONE, end
from testbed.tor.onion.leave import take_leave
from testbed.tor.onion.reissue import held_of, reissue
from testbed.tor.onion.services import OnionServices

LOOK = 0.05
"""Seconds between two looks at whether the instance in service lives."""
REPAIRS = 3
"""How often the HSDirs are looked at, and given the new descriptor where they lack it, before that is left."""


@dataclass(frozen=True)
class Call:
    """A migration that is due."""

    at: int
    """Pool time."""
    cause: str
    """``bit``, ``timer``, or ``died``: the instance in service is gone."""


@dataclass(frozen=True)
class Turn:
    """An instance that has taken over; the old one, if it lives, still serves too. Times are ``time.monotonic()``."""

    call: Call
    leaving: str
    to: str
    handover: float
    """Real seconds from when it was due, or was begun if that was later, until all HSDirs had acknowledged."""
    published: float
    failed: tuple[str, ...]
    """Others that had won before and could not be started."""


@dataclass(frozen=True)
class Move:
    """One migration, once the old instance is gone."""

    turn: Turn
    left: float
    """When the old one began to take leave; without leave, when it was ended; when it died, about then."""
    ended: float
    """When it was sent its signal, likewise."""
    held: int | None
    """Responsible HSDirs that had the new one's descriptor just before the old one left; None if not read."""
    hsdirs: int
    revisions: dict[str, int]
    """The revision counter at each HSDir then."""
    repaired: tuple[str, ...]
    """HSDirs that had another one's by then, and were given the new one's again."""


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

    def next(self) -> Call:
        """The next migration by the schedule. It is overdue if the time that it was due at has passed."""
        return Call(*self.schedule.next(self._last))

    def alive(self, instance: str) -> bool:
        """Whether its tor runs."""
        return instance in self.onions.running(self.service)

    def await_call(self, until: float) -> Call | None:
        """Wait for the next migration, by the schedule or by the end of the instance in service.

        None if there is none until then (monotonic seconds).
        """
        call = self.next()
        while self.alive(self.holder):
            now = time.monotonic()
            if now >= self.real(call.at):
                return call
            if now >= until:
                return None
            time.sleep(max(0.0, min(LOOK, self.real(call.at) - now, until - now)))
        return Call(self.now(), "died")

    def move(self, call: Call, *, overlap: float, leave: float, number: int) -> Move | None:
        """A whole migration, see ``take_over`` and ``retire``."""
        return self.retire(self.take_over(call), overlap=overlap, leave=leave, number=number)

    def take_over(self, call: Call) -> Turn:
        """Let the winner start anew and publish; the old one, if it lives, publishes no more from then on.

        A winner that cannot be started is left out. If that leaves nobody, raises as ``OnionServices.join`` does; the
        old one goes on then.
        """
        begun = max(time.monotonic(), self.real(call.at))
        leaving, failed, left_out = self.holder, [], dict(self._ready)
        while True:
            to = self.policy.winner(
                [Candidate(name, since, 0) for name, since in left_out.items()], leaving, self._epoch
            )
            try:
                _clear(self.onions, to)
                self.onions.join(self.service, to, progress=self._progress)
                break
            except TestbedError:
                del left_out[to]
                if not left_out:
                    raise
                failed.append(to)
        published = time.monotonic()
        self._publishes(leaving, False)
        self._last, self._epoch = self.now(), self._epoch + 1
        return Turn(call, leaving, to, published - begun, published, tuple(failed))

    def retire(self, turn: Turn, *, overlap: float, leave: float, number: int) -> Move | None:
        """End the old one, ``overlap`` seconds after the HSDirs have acknowledged the new one's descriptor.

        It takes leave for ``leave`` seconds and then gets signal ``number``. HSDirs that by then have another
        descriptor than the new one's, such as one that the old one published meanwhile, are given that again.
        None if the new one has died: the old one then goes on, and its descriptor is put back.
        """
        leaving, to = turn.leaving, turn.to
        while time.monotonic() < turn.published + overlap and self.alive(to) and self.alive(leaving):
            time.sleep(LOOK)
        if not self.alive(to) and self.alive(leaving):
            self._call_off(turn)
            return None
        held, revisions, hsdirs = self._holding(to)
        repaired = self._repair(to)
        left = ended = time.monotonic()
        if self.alive(leaving):
            if leave > 0:
                self._take_leave(leaving, leave)
            ended = end(self.onions.lab, [leaving], number) if self.alive(leaving) else time.monotonic()
            left = left if leave > 0 else ended
            repaired += self._repair(to)
        self._change(leaving, to)
        return Move(turn, left, ended, held, hsdirs, revisions, tuple(dict.fromkeys(repaired)))

    def _change(self, leaving: str, to: str) -> None:
        left = [process for process in self.onions.lab.processes() if process.node == leaving and process.alive()]
        for process in left:  # its web server, where only its tor died
            process.signal(signal.SIGKILL)
        wait_all_gone(left, GONE)
        _clear(self.onions, leaving)
        del self._ready[to]
        self._ready[leaving] = self.now()
        self.holder = to

    def _call_off(self, turn: Turn) -> None:
        self._ready[turn.to] = self.now()
        self._publishes(turn.leaving, True)
        self._repair(turn.leaving)

    def _take_leave(self, instance: str, seconds: float) -> None:
        node = make_node(self.onions.lab, instance)
        try:
            with contextlib.suppress(TestbedError):  # it has died: there is nothing to take leave of
                take_leave(node.require(), seconds)
        finally:
            node.close()

    def _publishes(self, instance: str, yes: bool) -> None:
        """Whether it publishes by itself, when tor finds that it is time to. Not if it is dead."""
        if not self.alive(instance):
            return
        node = make_node(self.onions.lab, instance)
        try:
            with contextlib.suppress(TestbedError):  # it has died meanwhile
                node.require().setconf(PublishHidServDescriptors=1) if yes else publish_no_more(node.require())
        finally:
            node.close()

    def _repair(self, instance: str) -> list[str]:
        """See to it that all HSDirs have its descriptor; those that had to be given it."""
        given: list[str] = []
        for _ in range(REPAIRS):
            with contextlib.suppress(TestbedError):  # an HSDir that does not answer on a busy machine ends no pool
                if not (lacking := reissue(self.onions, self.service, instance)):
                    break
                given += lacking
        return given

    def _holding(self, instance: str) -> tuple[int | None, dict[str, int], int]:
        """How many HSDirs hold its descriptor, all their revision counters, and how many there are."""
        with contextlib.suppress(TestbedError):  # a reading that fails on a busy machine is no reason to end the pool
            entries = held_of(self.onions, self.service, instance)
            revisions = {entry.nickname: entry.revision for entry in entries if entry.revision is not None}
            return sum(bool(entry.instance) for entry in entries), revisions, len(entries)
        return None, {}, 0


def _clear(onions: OnionServices, instance: str) -> None:
    """Remove the files that an instance serves; its tor's files are made anew with each start anyway."""
    shutil.rmtree(make_node(onions.lab, instance).paths.node / "www", ignore_errors=True)
