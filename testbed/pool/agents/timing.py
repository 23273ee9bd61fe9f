"""How patient the servers of a pool are with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from testbed.pool.agents.clock import SECOND

WithoutStore = Literal["serve", "stop"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in microseconds of pool time. What depends on machines and networks must be scaled by the clock's speed."""

    poll: int = SECOND
    """Every server reads the record at least so often: the longest that a lost message can go unnoticed."""
    lease: int = 5 * SECOND
    """The service is free so long after the last word of a server that held it."""
    alive: int = 5 * SECOND
    """A ready server is counted upon so long after its last word."""
    patience: int = 5 * SECOND
    """A server that should leave is suspended if no winner shows up for so long."""
    margin: int = 0
    """Others wait so much longer than the lease: at least what their clocks can differ."""
    suspended_limit: int | None = None
    """Longest stay in the suspended state."""
    without_store: WithoutStore = "serve"
    """What a server in service does when its lease ends and the store does not answer."""

    def __post_init__(self) -> None:
        if self.poll <= 0:
            raise ValueError("the servers would never read the record; give `poll` a time above 0")
        for name in ("lease", "alive"):
            if getattr(self, name) < 3 * self.poll:
                raise ValueError(
                    f"`{name}` ends before it can be made longer twice; give it at least three times `poll`"
                )
        if self.margin < 0 or self.patience < 0:
            raise ValueError("a time is negative; give 0 or more")

    def scaled(self, speed: float) -> Timing:
        """For a clock ``speed`` times as fast, so that the same real time is left to machines and networks."""
        limit = self.suspended_limit
        return Timing(
            round(self.poll * speed),
            round(self.lease * speed),
            round(self.alive * speed),
            round(self.patience * speed),
            round(self.margin * speed),
            limit,
            self.without_store,
        )

    @property
    def bound(self) -> int:
        """Once the store answers all and messages flow, a ready server serves within this time.

        The lease of a dead holder, or the word of a dead winner, must run out (both may do so at the same time), after
        a restart of the store counted from there; then a poll of the real winner and one of who hands over to it.
        """
        return max(self.lease, self.alive) + self.lease + self.margin + 3 * self.poll
