"""A server's part in the pool: it watches the shared record, competes, takes the service and gives it up.

Nothing here knows whether time is virtual or real, or what carries the messages. The rule that keeps two from serving:
a server serves only while the record names it as the holder and its lease runs; it stops before it says that it has;
and nobody changes the holder before that or before the lease has run out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from testbed.pool.agents.clock import Clock, Timer
from testbed.pool.agents.competition import Policy
from testbed.pool.agents.machine import Machine, Move, State
from testbed.pool.agents.store import Entry, Record, Seen, Store, StoreLost
from testbed.pool.agents.timing import Timing
from testbed.pool.agents.transport import Kind, Message, Transport
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import FOREVER, Live

TRIES = 8
"""Changes of the record that may get in between before the agent leaves it to its next poll."""


class Body(Protocol):
    """What an agent moves: the server itself."""

    def serve(self, epoch: int) -> None:
        """Requests are answered here from now on."""

    def cease(self) -> None:
        """No longer."""

    def initialise(self, done: Callable[[], None]) -> None:
        """Make the server anew and check it; call ``done`` on the agent's clock if, and only if, nothing is wrong."""


class Agent:
    """One server. All of its methods run on its clock."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        store: Store,
        transport: Transport,
        schedule: Schedule,
        policy: Policy,
        body: Body,
        timing: Timing,
        live: Live | None = None,
    ) -> None:
        """``live`` is the stream of the schedule, if any, whose bits come from the detections in the record."""
        self.name = name
        self.machine = Machine(name, clock.now(), timing.suspended_limit)
        self._clock, self._store, self._transport = clock, store, transport
        self._schedule, self._policy, self._body, self._timing, self._live = schedule, policy, body, timing, live
        self._making = 0  # how often it was made anew
        self._clean = False  # it has been made anew, and the record does not say so yet
        self._lease = 0
        self._epoch = 0  # the highest that was seen
        self._attacks = 0
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Be made anew, then take part."""
        self._initialise()
        self.step()

    def stop(self) -> None:
        """Do nothing any more, as if killed."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    def receive(self, message: Message) -> None:
        """Somebody says that the record has changed."""
        if message.sender != self.name:
            self.step()

    def attacked(self) -> None:
        """A detector noticed an attack on this server."""
        self._attacks += 1
        self.step()

    def serving(self, now: int) -> bool:
        """Whether requests are to be answered here. After the lease only if the store is away and that is allowed."""
        return self.machine.serving and (now < self._lease or self._timing.without_store == "serve")

    def step(self) -> None:
        """Read the record, do what is to be done, and see to it that this is called again in time."""
        if self._stopped:
            return
        wake = self._clock.now() + self._timing.poll
        try:
            for _ in range(TRIES):
                seen = self._store.read()
                if self._act(seen):
                    wake = min(wake, self._next_due(seen.record))
                    break
        except StoreLost:
            self._without_store()
        if self.machine.serving:
            ends = [end for end in (self.machine.deadline, self._lease) if end is not None and end > self._clock.now()]
            wake = min([wake, *ends])
        if self._timer:
            self._timer.cancel()
        self._timer = self._clock.at(wake, self.step)

    def _initialise(self) -> None:
        self._making += 1
        self._body.initialise(partial(self._checked, self._making))

    def _checked(self, making: int) -> None:
        if making == self._making and self.machine.state is State.INITIALISING:  # not the word of an earlier time
            self._clean = True
            self.step()

    def _act(self, seen: Seen) -> bool:
        """One look at the record; False if it has changed since and must be looked at again."""
        record = seen.record
        self._epoch = max(self._epoch, record.epoch)
        self._feed(record)
        if self.machine.serving and record.holder != self.name:
            self._leave()  # the lease had run out, and another has taken the service
        if self._attacks:
            against_holder = self._attacks if record.holder == self.name else 0
            if self._store.swap(seen.version, record.detected(self._clock.now(), against_holder)):
                self._attacks = 0
            return False
        if self.machine.state is State.INITIALISING:
            return self._initialising(seen)
        if self.machine.state is State.READY:
            return self._ready(seen)
        return self._serving(seen)

    def _initialising(self, seen: Seen) -> bool:
        record, now = seen.record, self._clock.now()
        if record.holder == self.name:  # given up, by this agent or by one that was killed: the others must know
            self._give_up(seen)
            return False
        entry = record.servers.get(self.name)
        if self._clean:
            ready = Entry(State.READY, now, entry.attacks if entry else 0, now + self._timing.alive)
            if not self._store.swap(seen.version, record.with_entry(self.name, ready)):
                return False
            self._clean = False
            self.machine.make(Move.PASS, now)
            self._say(Kind.READY, self.name)
            return False
        if entry is None or entry.state is not State.INITIALISING:
            mine = Entry(State.INITIALISING, self.machine.since, entry.attacks if entry else 0)
            return self._store.swap(seen.version, record.with_entry(self.name, mine))
        return True

    def _ready(self, seen: Seen) -> bool:
        record, now = seen.record, self._clock.now()
        if record.holder == self.name:
            return self._take(seen)
        entry = record.servers.get(self.name)
        if entry is None or entry.state is not State.READY or entry.alive_until - now < self._timing.alive // 2:
            attacks = entry.attacks if entry else 0
            mine = Entry(State.READY, self.machine.since, attacks, now + self._timing.alive)
            self._store.swap(seen.version, record.with_entry(self.name, mine))
            return False
        if self._policy.central:
            return True
        if free(seen, now, self._timing):
            if self._policy.winner(record.candidates(now), record.holder, record.epoch) == self.name:
                given = record.given(self.name, now, self._timing.lease, self._epoch + 1)
                self._store.swap(seen.version, given)
                return False
        elif (
            self._policy.rotates
            and self._schedule.next(record.since, now).at <= now
            and record.elected(now) is None
            and self._policy.winner(record.candidates(now), record.holder, record.epoch) == self.name
        ):
            if not self._store.swap(seen.version, replace(record, winner=self.name)):
                return False
            self._say(Kind.WON, self.name)
        return True

    def _take(self, seen: Seen) -> bool:
        """The record names this server, which is ready: serve, under a lease that runs."""
        record, now = seen.record, self._clock.now()
        if record.lease <= now:
            self._store.swap(seen.version, replace(record, lease=now + self._timing.lease))
            return False
        self.machine.make(Move.WIN, now)
        self._lease = record.lease
        self._body.serve(record.epoch)
        self._say(Kind.TAKEN, self.name)
        return True

    def _serving(self, seen: Seen) -> bool:
        record, now = seen.record, self._clock.now()
        self._lease = max(self._lease, record.lease)
        deadline = self.machine.deadline
        if deadline is not None and now >= deadline:
            return self._leave_and_tell(seen)
        due = self._schedule.next(record.since, now) if self._policy.rotates else None
        if due is not None and due.at <= now:
            if record.elected(now):
                return self._leave_and_tell(seen)
            alone = not record.candidates(now)
            if self.machine.state is State.SERVICE and (alone or now >= due.at + self._timing.patience):
                self.machine.make(Move.HOLD, now)
        entry = record.servers.get(self.name)
        state = Entry(self.machine.state, self.machine.since, entry.attacks if entry else 0)
        if entry != state or record.lease - now < self._timing.lease // 2:
            kept = replace(record.with_entry(self.name, state), lease=now + self._timing.lease)
            self._store.swap(seen.version, kept)
            return False
        return True

    def _leave_and_tell(self, seen: Seen) -> bool:
        self._leave()
        self._give_up(seen)
        return False

    def _leave(self) -> None:
        """Stop serving. Only then may the record say so."""
        self._body.cease()
        self.machine.leave(self._clock.now())
        self._initialise()

    def _give_up(self, seen: Seen) -> None:
        """Hand the service to the winner, or leave it to who is there."""
        record, now = seen.record, self._clock.now()
        to = record.elected(now)
        mine = Entry(State.INITIALISING, self.machine.since, record.attacks)
        given = record.with_entry(self.name, mine).given(to, now, self._timing.lease, self._epoch + 1)
        if self._store.swap(seen.version, given):
            self._say(Kind.TAKEN, to or self.name)

    def _without_store(self) -> None:
        now = self._clock.now()
        if not self.machine.serving or now < self._lease:
            return
        deadline = self.machine.deadline
        if self._timing.without_store == "stop" or (deadline is not None and now >= deadline):
            self._leave()
        elif self.machine.state is State.SERVICE:
            self.machine.make(Move.HOLD, now)

    def _feed(self, record: Record) -> None:
        if self._live is not None:
            for at in record.detections:
                self._live.detected(at)  # again and again: it does not count them

    def _next_due(self, record: Record) -> int:
        """When the migration falls due that is not due yet."""
        now = self._clock.now()
        if record.holder is None:
            return FOREVER
        due = self._schedule.next(record.since, now).at
        return due if due > now else FOREVER

    def _say(self, kind: Kind, server: str) -> None:
        self._transport.broadcast(Message(kind, self.name, self._epoch, server))


def free(seen: Seen, now: int, timing: Timing) -> bool:
    """Whether the service may be taken without being handed over.

    A lease that ran out while the store was away counts on from its return: the holder could not make it longer.
    """
    record = seen.record
    if record.holder is None:
        return True
    grace = seen.opened + timing.lease if seen.opened > 0 else 0
    return now >= max(record.lease, grace) + timing.margin
