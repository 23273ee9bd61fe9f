"""A pool of real agents in virtual time: the network, the store and the servers are stand-ins that can fail.

It is for finding out what the protocol does when messages and answers are lost, late or doubled, and servers die.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from testbed.pool.agents.agent import Agent
from testbed.pool.agents.clock import VirtualClock
from testbed.pool.agents.competition import Competition, Policy
from testbed.pool.agents.controller import Controller
from testbed.pool.agents.store import MemoryStore, Record, Seen, StoreLost
from testbed.pool.agents.timing import Timing
from testbed.pool.agents.transport import Message
from testbed.pool.schedule.scheduler import Schedule

CONTROLLER = "controller"


@dataclass
class Faults:
    """How badly things go. Probabilities, and times in microseconds."""

    loss: float = 0.0
    """Of a message to one receiver."""
    duplicate: float = 0.0
    delay: int = 0
    """Longest delay of a message; each has its own, so they overtake each other."""
    request_lost: float = 0.0
    """The store never hears of it."""
    answer_lost: float = 0.0
    """The store has done it, and the server does not know."""
    request_late: float = 0.0
    """The server has given up, and then the store does it, up to ``delay`` later."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A server served from ``start`` to ``end``, in microseconds; it does so still if ``end`` is None."""

    server: str
    epoch: int
    start: int
    end: int | None = None


class VirtualPool:
    """Servers, their agents, a network, a store and a clock."""

    def __init__(
        self,
        servers: Sequence[str],
        schedule: Callable[[], Schedule],
        *,
        timing: Timing | None = None,
        policy: Policy | None = None,
        reinitialise: int = 0,
        seed: int = 0,
    ) -> None:
        """``schedule`` makes one for each server, as each has its own."""
        self.clock = VirtualClock()
        self.faults = Faults()
        self.timing = timing or Timing()
        self.policy = policy or Competition()
        self.reinitialise = reinitialise
        self.turns: list[Turn] = []
        self.agents: dict[str, Agent] = {}
        self.controller: Controller | None = None
        self.cut_off: set[str] = set()
        """Servers that reach neither the store nor the others."""
        self.tampered: set[str] = set()
        """Servers whose check finds something, so that they never become ready."""
        self.store_up = True
        self._schedule = schedule
        self._random = random.Random(seed)
        self._memory = MemoryStore()
        for name in servers:
            self.start(name)
        if self.policy.central:
            self.start_controller()

    def start(self, name: str) -> None:
        """A server begins, or begins again after ``kill``."""
        body = _Body(self, name)
        self.agents[name] = agent = Agent(
            name,
            clock=self.clock,
            store=_Access(self, name),
            transport=_Broadcast(self, name),
            schedule=self._schedule(),
            policy=self.policy,
            body=body,
            timing=self.timing,
        )
        agent.start()

    def start_controller(self) -> None:
        """The central controller begins, or begins again."""
        self.controller = Controller(
            CONTROLLER,
            clock=self.clock,
            store=_Access(self, CONTROLLER),
            transport=_Broadcast(self, CONTROLLER),
            schedule=self._schedule(),
            policy=self.policy,
            timing=self.timing,
        )
        self.controller.start()

    def kill(self, name: str) -> None:
        """A server dies, and its agent with it."""
        if name == CONTROLLER and self.controller:
            self.controller.stop()
            self.controller = None
        elif name in self.agents:
            self.agents.pop(name).stop()
            self.ended(name)

    def stop_store(self) -> None:
        """The store answers nobody until ``start_store``; its record is kept."""
        self.store_up = False

    def start_store(self) -> None:
        """The store answers again."""
        if not self.store_up:
            self.store_up = True
            self._memory.opened = self.clock.now()

    @property
    def record(self) -> Record:
        """What the store holds."""
        return self._memory.read().record

    def serving(self) -> list[str]:
        """The servers that serve now."""
        now = self.clock.now()
        return [name for name, agent in self.agents.items() if agent.serving(now)]

    def run(self, until: int) -> None:
        """Let time pass up to ``until``."""
        self.clock.run(until)

    def began(self, server: str, epoch: int) -> None:
        """A server serves."""
        self.turns.append(Turn(server, epoch, self.clock.now()))

    def ended(self, server: str) -> None:
        """It no longer does."""
        for index, turn in enumerate(self.turns):
            if turn.server == server and turn.end is None:
                self.turns[index] = Turn(server, turn.epoch, turn.start, self.clock.now())

    def happens(self, probability: float) -> bool:
        """By lot."""
        return probability > 0 and self._random.random() < probability

    def some_delay(self) -> int:
        """By lot, up to the longest."""
        return self._random.randint(0, self.faults.delay)

    def deliver(self, message: Message, sender: str) -> None:
        """Carry a message to all others, as far as the faults let it through."""
        for receiver in [*self.agents, *([CONTROLLER] if self.controller else [])]:
            if receiver == sender or {receiver, sender} & self.cut_off or self.happens(self.faults.loss):
                continue
            for _ in range(2 if self.happens(self.faults.duplicate) else 1):
                self.clock.at(self.clock.now() + self.some_delay(), partial(self._arrive, message, receiver))

    def _arrive(self, message: Message, receiver: str) -> None:
        agent = self.controller if receiver == CONTROLLER else self.agents.get(receiver)
        if agent and receiver not in self.cut_off:
            agent.receive(message)

    def read(self, name: str) -> Seen:
        """The store, as far as the faults let ``name`` through."""
        if not self._reaches(name) or self.happens(self.faults.request_lost):
            raise StoreLost("the store does not answer")
        return self._memory.read()

    def swap(self, name: str, version: int, record: Record) -> bool:
        """See ``read``."""
        if not self._reaches(name) or self.happens(self.faults.request_lost):
            raise StoreLost("the store does not answer")
        if self.happens(self.faults.request_late):
            self.clock.at(self.clock.now() + self.some_delay(), lambda: self._late(version, record))
            raise StoreLost("the store does not answer in time")
        done = self._memory.swap(version, record)
        if self.happens(self.faults.answer_lost):
            raise StoreLost("the store's answer is lost")
        return done

    def _late(self, version: int, record: Record) -> None:
        if self.store_up:
            self._memory.swap(version, record)

    def _reaches(self, name: str) -> bool:
        return self.store_up and name not in self.cut_off


@dataclass(frozen=True, slots=True)
class _Access:
    """One server's way to the store."""

    pool: VirtualPool
    name: str

    def read(self) -> Seen:
        return self.pool.read(self.name)

    def swap(self, version: int, record: Record) -> bool:
        return self.pool.swap(self.name, version, record)


@dataclass(frozen=True, slots=True)
class _Broadcast:
    """One server's way to the others."""

    pool: VirtualPool
    name: str

    def broadcast(self, message: Message) -> None:
        self.pool.deliver(message, self.name)


@dataclass(frozen=True, slots=True)
class _Body:
    """A server that is made anew by waiting."""

    pool: VirtualPool
    name: str

    def serve(self, epoch: int) -> None:
        self.pool.began(self.name, epoch)

    def cease(self) -> None:
        self.pool.ended(self.name)

    def initialise(self, done: Callable[[], None]) -> None:
        def checked() -> None:
            if self.name not in self.pool.tampered:
                done()

        self.pool.clock.at(self.pool.clock.now() + self.pool.reinitialise, checked)
