"""The distributor at work: it watches instances and consensus, and has the HSDirs hold what they should.

Everything is placed anew, with one higher revision counter on all HSDirs, as soon as one of them should hold something
else. So a client that gave up one instance may take any other HSDir's descriptor: tor keeps the one that it has if that
has a higher counter, even if nobody answers there any more.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.tor.directory import Directory
from testbed.tor.distribute.agent import Agents
from testbed.tor.distribute.compose import COMPOSERS
from testbed.tor.distribute.counters import Counters
from testbed.tor.distribute.document import Content
from testbed.tor.distribute.instance import InstanceWatch
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.placing import Placer
from testbed.tor.distribute.settings import Settings, read_address, read_key
from testbed.tor.distribute.shelf import Shelf
from testbed.tor.distribute.where import check_clock, other_half, run_starts
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.hsdir import Responsible, Ring

GATHER = 10.0
"""Seconds from the first instance that is ready for which the others are waited for before anything is placed."""
LOOK = 2.0
"""Seconds between looks at the consensus."""
ONE_BY_ONE = 2.0
"""Seconds from handing one instance over to the next."""
_TICK = 0.2


class Distributor:
    """One service. ``open`` refuses what cannot work; ``run`` goes on until it is told to stop."""

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings, self._journal = settings, journal
        self._secret = read_key(Path(settings.key), settings.address)
        self._composer = COMPOSERS[settings.mode]
        self._agents = Agents(settings.agents or settings.instances, cookie=settings.cookie, journal=journal)
        self._placer = Placer(
            self._secret,
            self._composer,
            self._agents,
            Counters(Path(settings.folder) / "counters.json"),
            journal,
        )
        self._changed = threading.Event()
        self._watches = [
            InstanceWatch(
                member,
                member.address or self._secret.address,
                read_address(member.address) if member.address else self._secret.public,
                poll=settings.poll,
                cookie=settings.cookie,
                journal=journal,
                changed=self._changed.set,
            )
            for member in settings.instances
        ]
        self._shelves: list[Shelf] = []
        self._directory: Directory | None = None
        self._ring: Ring | None = None
        self._looked_at = -LOOK
        self._live: dict[str, Content] = {}
        self._first_at: float | None = None
        self._rotated_at = self._credited_at = time.monotonic()
        self._held: dict[str, float] = {}
        self._paused = ""
        self._to_tell: list[tuple[InstanceWatch, bool]] = []
        self._told_at = -ONE_BY_ONE
        self._said: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """The service's, with ``.onion``."""
        return self._secret.address

    def open(self) -> None:
        """Connect, and check that it can work: TestbedError for bad ports, cookies, clocks, halves and numbers."""
        self._agents.open()
        directory = self._agents.directory()
        check_clock(directory, time.time())
        ring = directory.ring(self._secret.public)
        failure = self._unfit(directory, ring)
        if failure:
            raise failure
        self._check_number(len(ring.fetched.hsdirs))
        self._take(directory)
        self._report()

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set. What the HSDirs hold stays there."""
        for watch in self._watches:
            watch.start()
        try:
            while not stop.is_set():
                self._changed.wait(_TICK)
                self._changed.clear()
                self._credit()
                try:
                    self._step(time.monotonic())
                except TestbedError as error:  # all of it is tried again
                    self._say("trouble", message=str(error))
                    stop.wait(LOOK)
                self._report()
        finally:
            for watch in self._watches:
                watch.stop()
            self._report(ended=True)
            self._agents.close()

    def _unfit(self, directory: Directory, ring: Ring) -> TestbedError | None:
        return None if self._composer.both_halves else other_half(directory, ring, time.time())

    def _check_number(self, hsdirs: int) -> None:
        number = len(self._settings.instances)
        limit = self._settings.limit or self._composer.limit(hsdirs)
        if not 1 <= number <= limit:
            raise TestbedError(
                f"`{self._settings.mode}` cannot serve {number} instances with {hsdirs} HSDirs, but 1 to {limit}",
                remedy="use fewer instances" if self._composer.both_halves else "use fewer, or `publish: hybrid`",
            )

    def _step(self, now: float) -> None:
        if now - self._looked_at >= LOOK:
            self._look()
        self._tell_next(now)
        if self._paused:
            return
        self._notice(now)
        if not self._live or self._gathering(now):
            return
        rotate = now - self._rotated_at >= self._settings.rotate
        if rotate:
            self._rotated_at = now
        for shelf in self._shelves:
            self._tend(shelf, now, rotate=rotate)

    def _tell_next(self, now: float) -> None:
        """Let the next instance publish alone, or no more."""
        if self._to_tell and now - self._told_at >= ONE_BY_ONE:
            self._told_at = now
            watch, alone = self._to_tell.pop(0)
            watch.let_publish(alone)

    def _tend(self, shelf: Shelf, now: float, *, rotate: bool) -> None:
        """Have the HSDirs of one shelf hold what they should."""
        shelf.settled = False
        live = self._usable(shelf)
        if not live:
            return
        reason = self._placer.plan(shelf, live, self._held, rotate=rotate, refresh=self._settings.refresh)
        due = shelf.due(now)
        if reason:
            self._placer.place(shelf, live, reason)
        elif due:
            self._placer.try_again(shelf, live, due)
        shelf.settled = not reason and not due
        unseen = any(held.verified is None for held in shelf.held.values())
        if shelf.fetched and (unseen or now - shelf.looked_at >= self._settings.verify):
            self._placer.verify(shelf)

    def _usable(self, shelf: Shelf) -> dict[str, Content]:
        """Instances whose introduction points serve the shelf's period. With the service's own key those are only of
        the descriptor for that period, and a tor that is late still has the one for the period before."""
        if self._composer.both_halves:
            return self._live
        return {name: item for name, item in self._live.items() if item.blinded_key == shelf.signer.public}

    def _look(self) -> None:
        """See whether there is a new consensus."""
        self._looked_at = time.monotonic()
        valid_after = self._agents.getinfo("consensus/valid-after")
        if self._directory is None or valid_after != _utc(self._directory.consensus.valid_after):
            self._take(self._agents.directory())
        elif self._ring is not None:
            self._pause(self._unfit(self._directory, self._ring))

    def _take(self, directory: Directory) -> None:
        """Go by a new consensus: other HSDirs, or another time period."""
        self._directory = directory
        self._ring = ring = directory.ring(self._secret.public)
        self._pause(self._unfit(directory, ring))
        wanted = [ring.current, ring.next] if self._composer.both_halves else [ring.current]
        before, self._shelves = self._shelves, [self._shelf(item, directory, ring) for item in wanted]
        if before and before[0].responsible.period != self._shelves[0].responsible.period:
            self._journal.event("period_changed", period=ring.fetched.period)

    def _pause(self, failure: TestbedError | None) -> None:
        """Hand the instances back to their own tors while nothing can be done for them, or take them over again.

        One after the other, see ``_tell_next``: each is away for a second.
        """
        if bool(failure) == bool(self._paused):
            return
        self._journal.event("paused" if failure else "goes_on", message=str(failure or ""))
        self._paused = str(failure or "")
        self._to_tell = [(watch, bool(failure)) for watch in self._watches]

    def _shelf(self, responsible: Responsible, directory: Directory, ring: Ring) -> Shelf:
        """The shelf for these HSDirs. What is known of those that stay is kept."""
        fetched = responsible is ring.fetched
        run_start = run_starts(directory.consensus)[responsible is ring.next]
        old = next((s for s in self._shelves if s.responsible.blinded_key == responsible.blinded_key), None)
        if old is None:
            length = directory.consensus.periods.length
            signer = BlindedSigner.make(self._secret.expanded, responsible.period, length)
            return Shelf(responsible, signer, fetched, run_start, directory.consensus.periods)
        joined, left = old.compared_with(responsible)
        if joined or left:
            self._journal.event("hsdirs_changed", joined=joined, left=left)
        return old.moved_to(responsible, fetched=fetched, run_start=run_start)

    def _notice(self, now: float) -> None:
        """Take in what the watches see, and tell who came and went."""
        views = {watch.member.name: watch.view for watch in self._watches}
        live = {name: view.content for name, view in views.items() if view.content is not None}
        for name in self._live.keys() - live.keys():
            self._journal.event("instance_lost", name, why=views[name].why)
        for name in live.keys() - self._live.keys():
            self._journal.event("instance_ready", name, points=len(live[name].points))
        if live and self._first_at is None:
            self._first_at = now
        if self._live and not live:
            self._journal.event("nobody_lives", message="the HSDirs keep what they have")
        self._live = live

    def _gathering(self, now: float) -> bool:
        """At first, whether to wait for instances that will be ready in a moment."""
        placed = any(shelf.placed_at is not None for shelf in self._shelves)
        all_there = len(self._live) == len(self._watches)
        return not placed and not all_there and self._first_at is not None and now - self._first_at < GATHER

    def _credit(self) -> None:
        """Add up for how long each instance has held HSDirs."""
        now = time.monotonic()
        for shelf in self._shelves:
            for held in shelf.held.values() if shelf.fetched else ():
                for name in held.names:
                    share = (now - self._credited_at) / len(held.names)
                    self._held[name] = self._held.get(name, 0.0) + share
        self._credited_at = now

    def _say(self, kind: str, **detail: Any) -> None:
        """Tell what may come again and again only when it is something else."""
        if self._said.get(kind) != detail:
            self._said[kind] = detail
            self._journal.event(kind, **detail)

    def _report(self, *, ended: bool = False) -> None:
        """Write the state, if it is new."""
        names = {watch.member.name for watch in self._watches}
        complete = set(self._live) == names and all(shelf.complete(self._live) for shelf in self._shelves)
        status = {
            "address": self._secret.address,
            "mode": self._settings.mode,
            "ended": ended,
            "paused": self._paused,
            "complete": complete and bool(self._shelves),
            "live": {name: content.signing_key.hex() for name, content in self._live.items()},
            "waiting": {watch.member.name: watch.view.why for watch in self._watches if watch.view.content is None},
            "shelves": [shelf.shown() for shelf in self._shelves],
        }
        if status != self._said.get("status"):
            self._said["status"] = status
            self._journal.status(status)


def _utc(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(moment))
