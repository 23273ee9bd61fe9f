"""A whole pool in virtual time, by the schedule, the state machine and the competition alone.

Servers hear of everything at once and nothing fails; for what messages and crashes do, see ``virtual``. What is found
here is what the real pool is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from testbed.pool.agents.competition import Candidate, Competition, Policy
from testbed.pool.agents.machine import Machine, Move
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import FOREVER

Attacks = Callable[[str, int, int], int]
"""How many attacks on a server are noticed in (start, end]."""


class Migration(NamedTuple):
    """The service left ``source``. Times in microseconds."""

    due: int
    """When it had to leave."""
    left: int
    """When it did; later than ``due`` if nobody was ready."""
    taken: int
    """When ``target`` took it; later than ``left`` only if the suspended state's timer ran out."""
    cause: Literal["bit", "timer", "look"]
    source: str
    target: str


@dataclass(frozen=True)
class Trace:
    """What happened from 0 to ``horizon``, excluded."""

    servers: tuple[str, ...]
    horizon: int
    migrations: tuple[Migration, ...]

    @property
    def times(self) -> tuple[int, ...]:
        """When the service moved."""
        return tuple(migration.left for migration in self.migrations)

    def leaves(self) -> dict[str, int]:
        """How often each server gave the service up."""
        return {name: sum(m.source == name for m in self.migrations) for name in self.servers}

    def suspended(self) -> int:
        """Time in all that servers served although they should have left."""
        return sum(migration.left - migration.due for migration in self.migrations)


def simulate(
    servers: Sequence[str],
    schedule: Schedule,
    horizon: int,
    *,
    policy: Policy | None = None,
    reinitialise: int = 0,
    suspended_limit: int | None = None,
    attacks: Attacks | None = None,
) -> Trace:
    """Run a pool whose servers are all ready at the start. See ``migrations``."""
    found = migrations(
        servers,
        schedule,
        horizon,
        policy=policy,
        reinitialise=reinitialise,
        suspended_limit=suspended_limit,
        attacks=attacks,
    )
    return Trace(tuple(servers), horizon, tuple(found))


def migrations(
    servers: Sequence[str],
    schedule: Schedule,
    horizon: int = FOREVER,
    *,
    policy: Policy | None = None,
    reinitialise: int = 0,
    suspended_limit: int | None = None,
    attacks: Attacks | None = None,
) -> Iterator[Migration]:
    """The migrations before ``horizon``, one after the other.

    A server that left is ready again after ``reinitialise``. One that should leave while nobody is ready is suspended:
    it serves until somebody is, or until ``suspended_limit`` has passed; then nobody serves until somebody is ready.
    Raises ValueError for less than two servers.
    """
    if len(servers) < 2 or len(set(servers)) < len(servers):
        raise ValueError("a pool needs two servers of different names; one alone has nobody to hand over to")
    policy = policy or Competition()
    machines = {name: Machine(name, suspended_limit=suspended_limit) for name in servers}
    for machine in machines.values():
        machine.make(Move.PASS, 0)
    waiting = [Candidate(name, 0, 0) for name in servers]  # by the time at which they are ready
    serving = machines[policy.winner(waiting, None, 0)]
    serving.make(Move.WIN, 0)
    waiting = [candidate for candidate in waiting if candidate.name != serving.name]
    since, epoch = 0, 0
    while policy.rotates:
        due, cause = schedule.next(since)
        if due >= horizon or due == FOREVER:
            return
        epoch += 1
        left, taken = _when(due, waiting[0].ready_since, serving)
        if left >= horizon:
            return
        serving.leave(left)
        ready = waiting if waiting[-1].ready_since <= taken else [c for c in waiting if c.ready_since <= taken]
        source, target = serving.name, policy.winner(ready, serving.name, epoch)
        yield Migration(due, left, taken, cause, source, target)
        waiting = [candidate for candidate in waiting if candidate.name != target]
        serving.make(Move.PASS, left + reinitialise)
        waiting.append(Candidate(source, left + reinitialise, attacks(source, since, left) if attacks else 0))
        serving, since = machines[target], taken
        serving.make(Move.WIN, taken)


def _when(due: int, ready: int, serving: Machine) -> tuple[int, int]:
    """When the server leaves and when the next one takes over, if the first one is ready at ``ready``."""
    if ready <= due:
        return due, due
    serving.make(Move.HOLD, due)
    deadline = serving.deadline
    return (ready, ready) if deadline is None or ready <= deadline else (deadline, ready)
