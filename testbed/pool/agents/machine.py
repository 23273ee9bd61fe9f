"""The states of a server and the five moves between them. There is no way to write a sixth."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from testbed.errors import TestbedError


class State(Enum):
    """A server is in exactly one."""

    SERVICE = "service"
    INITIALISING = "initialising"
    READY = "ready"
    SUSPENDED = "suspended"

    def __repr__(self) -> str:
        return self.value


class Move(Enum):
    """Each move goes from one state to one other."""

    WIN = (State.READY, State.SERVICE)
    """It won the competition."""
    MIGRATE = (State.SERVICE, State.INITIALISING)
    """The service moved to another server."""
    HOLD = (State.SERVICE, State.SUSPENDED)
    """A migration is due and there is nobody to take over: it goes on serving."""
    RELIEVE = (State.SUSPENDED, State.INITIALISING)
    """Somebody took over at last, or the timer of the suspended state ran out. Never back to ready without cleaning."""
    PASS = (State.INITIALISING, State.READY)
    """It has been made anew and its check found nothing."""

    def __init__(self, source: State, target: State) -> None:
        self.source = source
        self.target = target


class IllegalMove(TestbedError):
    """A server was asked for a move that does not start in its state."""


class Machine:
    """One server's state. Times in microseconds of pool time."""

    __slots__ = ("listener", "name", "since", "state", "suspended_limit")

    def __init__(self, name: str, at: int = 0, suspended_limit: int | None = None) -> None:
        """A server begins by being initialised. ``suspended_limit`` is the longest that it may stay suspended."""
        self.name = name
        self.state = State.INITIALISING
        self.since = at
        self.suspended_limit = suspended_limit
        self.listener: Callable[[Move, int], None] | None = None
        """Told of each move, once it is made."""

    def make(self, move: Move, at: int) -> None:
        """Raises ``IllegalMove`` if the move starts in another state, or lies before the last one."""
        if self.state is not move.source:
            raise IllegalMove(
                f"{self.name} is {self.state.value} and cannot {move.name.lower()}",
                remedy=f"only from {move.source.value}",
            )
        if at < self.since:
            raise IllegalMove(f"{self.name} cannot {move.name.lower()} before it became {self.state.value}")
        self.state = move.target
        self.since = at
        if self.listener:
            self.listener(move, at)

    @property
    def serving(self) -> bool:
        """Whether requests are answered: in service, or suspended, which is service beyond its time."""
        return self.state is State.SERVICE or self.state is State.SUSPENDED

    def leave(self, at: int) -> None:
        """Stop serving, from whichever of the two states."""
        self.make(Move.RELIEVE if self.state is State.SUSPENDED else Move.MIGRATE, at)

    @property
    def deadline(self) -> int | None:
        """When the timer of the suspended state runs out; None in any other state, or without a limit."""
        if self.state is not State.SUSPENDED or self.suspended_limit is None:
            return None
        return self.since + self.suspended_limit
