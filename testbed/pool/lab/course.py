"""What a real pool did, from its events: migrations, what each cost, and who served from when to when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.pool.agents.machine import Move, State

if TYPE_CHECKING:
    from testbed.pool.lab.pools import Pool

EVENT = "pool_course"
"""In a run: one pool from its beginning to its horizon."""
FAILOVER = "pool_failover"
"""In a run: a server that died."""


@dataclass(frozen=True, slots=True)
class Change:
    """A server's change of state, as its agent told of it."""

    server: str
    state: State
    move: Move | None
    """None where the agent begins with its server."""
    at: int
    """Microseconds of pool time."""


def change_of(server: str, told: Mapping[str, Any]) -> Change | None:
    """The change that an event of a pool is about; None if it is about something else."""
    if told["what"] != "state":
        return None
    move = Move[str(told["move"]).upper()] if told.get("move") else None
    return Change(server, State(told["state"]), move, int(told["at"]))


@dataclass(frozen=True, slots=True)
class Course:
    """From the pool's beginning to ``horizon``. Times in microseconds of pool time."""

    horizon: int
    servers: tuple[str, ...]
    left: tuple[tuple[int, str], ...]
    """When a server stopped serving, and which."""
    taken: tuple[int, ...]
    """When clients were led to the next one; the first is the beginning of service."""
    suspended: int
    """How often a server was suspended."""
    renewals: tuple[float, ...]
    """Real seconds that making a server anew took."""

    @property
    def leaves(self) -> dict[str, int]:
        """How often each server gave the service up."""
        return {name: sum(who == name for _, who in self.left) for name in self.servers}

    @property
    def lost(self) -> int:
        """Time without service: the end of each turn until the dispatcher leads clients to the next server."""
        gaps = [max(0, min(taken, self.horizon) - left) for (left, _), taken in self._pairs()]
        return sum(gaps) + (min(self.taken[0], self.horizon) if self.taken else self.horizon)

    @property
    def efficiency(self) -> float:
        """Service time over time; the paper's continuity."""
        return 1 - self.lost / self.horizon

    @property
    def exposure(self) -> float:
        """Mean service time of a turn, seconds of pool time."""
        return (self.horizon - self.lost) / (len(self.left) + 1) / 1e6

    def _pairs(self) -> list[tuple[tuple[int, str], int]]:
        later = [min((taken for taken in self.taken if taken >= left), default=self.horizon) for left, _ in self.left]
        return list(zip(self.left, later, strict=True))

    def plain(self) -> dict[str, Any]:
        """For the run."""
        return {
            "horizon": self.horizon,
            "times": [left for left, _ in self.left],
            "leaves": self.leaves,
            "lost": self.lost,
            "efficiency": self.efficiency,
            "exposure": self.exposure,
            "suspended": self.suspended,
            "renewals": list(self.renewals),
        }


def course(pool: Pool, horizon: int) -> Course:
    """What the pool has done until ``horizon``."""
    return course_of(pool.servers, pool.events(), pool.at, horizon)


def course_of(servers: Sequence[str], events: Sequence[dict[str, Any]], at: Any, horizon: int) -> Course:
    """The same from events; ``at`` gives the pool's time of a moment of the monotonic clock."""
    begins = max((index for index, event in enumerate(events) if event["what"] == "begins"), default=0)
    left, taken, suspended, renewals = [], [], 0, []
    for event in events[begins:]:
        when = at(event["t"])
        if when >= horizon:
            break
        if change := change_of(str(event["node"]), event):
            if change.move in (Move.MIGRATE, Move.RELIEVE):
                left.append((change.at, change.server))
            suspended += change.move is Move.HOLD
        elif event["what"] == "assigned":
            taken.append(when)
        elif event["what"] == "renewed":
            renewals.append(float(event["seconds"]))
    return Course(horizon, tuple(servers), tuple(left), tuple(taken), suspended, tuple(renewals))
