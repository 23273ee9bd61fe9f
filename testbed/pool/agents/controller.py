"""The central controller that the competition is compared with: it alone says who takes over."""

from __future__ import annotations

from dataclasses import replace

from testbed.pool.agents.agent import TRIES, free
from testbed.pool.agents.clock import Clock, Timer
from testbed.pool.agents.competition import Policy
from testbed.pool.agents.store import Seen, Store, StoreLost
from testbed.pool.agents.timing import Timing
from testbed.pool.agents.transport import Kind, Message, Transport
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import FOREVER


class Controller:
    """Not a server. While it is gone the server in service is suspended at the next migration, and stays so."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        store: Store,
        transport: Transport,
        schedule: Schedule,
        policy: Policy,
        timing: Timing,
    ) -> None:
        self.name = name
        self._clock, self._store, self._transport = clock, store, transport
        self._schedule, self._policy, self._timing = schedule, policy, timing
        self._epoch = 0
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Take part."""
        self.step()

    def stop(self) -> None:
        """Do nothing any more, as if killed."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    def receive(self, message: Message) -> None:
        """Somebody says that the record has changed."""
        self.step()

    def step(self) -> None:
        """Read the record, decide what is to be decided, and see to it that this is called again in time."""
        if self._stopped:
            return
        wake = self._clock.now() + self._timing.poll
        try:
            for _ in range(TRIES):
                seen = self._store.read()
                if self._act(seen):
                    wake = min(wake, self._next_due(seen))
                    break
        except StoreLost:
            pass  # until the next poll
        if self._timer:
            self._timer.cancel()
        self._timer = self._clock.at(wake, self.step)

    def _act(self, seen: Seen) -> bool:
        record, now = seen.record, self._clock.now()
        self._epoch = max(self._epoch, record.epoch)
        candidates = record.candidates(now)
        if not candidates:
            return True
        to = self._policy.winner(candidates, record.holder, record.epoch)
        if free(seen, now, self._timing):
            if self._store.swap(seen.version, record.given(to, now, self._timing.lease, self._epoch + 1)):
                self._transport.broadcast(Message(Kind.TAKEN, self.name, self._epoch, to))
                return True
            return False
        if record.elected(now) is None and self._schedule.next(record.since, now).at <= now:
            if not self._store.swap(seen.version, replace(record, winner=to)):
                return False
            self._transport.broadcast(Message(Kind.WON, self.name, self._epoch, to))
        return True

    def _next_due(self, seen: Seen) -> int:
        due = self._schedule.next(seen.record.since, self._clock.now()).at
        return due if seen.record.holder is not None and due > self._clock.now() else FOREVER
