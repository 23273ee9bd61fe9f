"""The agents of the virtual pool, as they are, in real time: one clock and thread each, and a store that is shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from testbed.pool.agents.agent import Agent
from testbed.pool.agents.clock import RealClock
from testbed.pool.agents.competition import Competition
from testbed.pool.agents.store import MemoryStore, Record, Seen
from testbed.pool.agents.timing import Timing
from testbed.pool.agents.transport import Message
from testbed.pool.schedule.scheduler import Schedule

MS = 1000
PATIENCE = 120
ROTATIONS = 9


class LockedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def read(self) -> Seen:
        with self.lock:
            return super().read()

    def swap(self, version: int, record: Record) -> bool:
        with self.lock:
            return super().swap(version, record)


class RealPool:
    """What happens is noted in the order in which it happens."""

    def __init__(self, names: str) -> None:
        self.lock = threading.Lock()
        self.notes: list[tuple[str, str]] = []
        self.done = threading.Event()
        store, start = LockedStore(), time.monotonic_ns()
        self.clocks = {name: RealClock(start=start) for name in names}
        self.agents = {
            name: Agent(
                name,
                clock=self.clocks[name],
                store=store,
                transport=RealBroadcast(self),
                schedule=Schedule(None, 30 * MS),
                policy=Competition(),
                body=RealBody(self, name),
                timing=Timing(poll=20 * MS, lease=600_000 * MS, alive=600_000 * MS, patience=600_000 * MS),
            )
            for name in names
        }
        for name, agent in self.agents.items():
            self.clocks[name].at(0, agent.start)

    def note(self, what: str, name: str) -> None:
        with self.lock:
            self.notes.append((what, name))
            if len(self.notes) >= 2 * ROTATIONS:
                self.done.set()

    def close(self) -> None:
        for name, clock in self.clocks.items():
            clock.at(0, self.agents[name].stop)
        for clock in self.clocks.values():
            clock.close(PATIENCE)


class RealBroadcast:
    def __init__(self, pool: RealPool) -> None:
        self.pool = pool

    def broadcast(self, message: Message) -> None:
        for name, clock in self.pool.clocks.items():
            if name != message.sender:
                clock.at(0, partial(self.pool.agents[name].receive, message))


class RealBody:
    def __init__(self, pool: RealPool, name: str) -> None:
        self.pool, self.name = pool, name

    def serve(self, epoch: int) -> None:
        self.pool.note("serves", self.name)

    def cease(self) -> None:
        self.pool.note("ceases", self.name)

    def initialise(self, done: Callable[[], None]) -> None:
        clock = self.pool.clocks[self.name]
        clock.at(clock.now() + 5 * MS, done)


def test_the_service_moves_in_real_time_and_never_two_serve() -> None:
    pool = RealPool("abc")
    try:
        assert pool.done.wait(PATIENCE), f"only this happened: {pool.notes}"
    finally:
        pool.close()
    serving = ""
    for what, name in pool.notes:
        assert (what == "serves") == (serving == "")
        assert what == "serves" or name == serving
        serving = name if what == "serves" else ""
    assert len({name for _, name in pool.notes}) == 3
