"""Service time, efficiency (the paper's continuity) and exposure of a course of migrations.

As in the paper a migration takes nothing from the time line: bits and timer stand at their own times. What a migration
costs is time without service at the beginning of the interval that it opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from testbed.pool.agents.clock import SECOND
from testbed.pool.simulation.simulate import Migration, Trace


@dataclass(frozen=True, slots=True)
class Account:
    """Of a run of ``horizon`` with ``intervals`` of service. Times in microseconds."""

    horizon: int
    intervals: int
    lost: int
    """Time without service."""

    @property
    def service(self) -> int:
        """Time with service."""
        return self.horizon - self.lost

    @property
    def efficiency(self) -> float:
        """Service time over time."""
        return self.service / self.horizon

    @property
    def exposure(self) -> float:
        """Mean exposure time: service time of an interval."""
        return self.service / self.intervals

    def printed(self) -> dict[str, str]:
        """As the paper prints it: service in seconds, efficiency in per cent, mean exposure in seconds.

        Halves are rounded up, from exact numbers: 3347.1 s of 3600 s is 92.975 %, printed 92.98.
        """
        service = Decimal(self.service)
        return {
            "service": _rounded(service / SECOND, "0.1"),
            "efficiency": _rounded(service * 100 / self.horizon, "0.01"),
            "exposure": _rounded(service / SECOND / self.intervals, "0.1"),
        }


def account(trace: Trace, *, cost: int = 0, total_cost: int | None = None) -> Account:
    """The account of a trace, with the cost of one migration, or of all together as the paper gives it."""
    if total_cost is not None:
        return Account(trace.horizon, len(trace.migrations) + 1, total_cost)
    exposed = exposures(trace.migrations, trace.horizon, cost)
    return Account(trace.horizon, len(exposed), trace.horizon - sum(exposed))


def exposures(migrations: Sequence[Migration], horizon: int, cost: int = 0) -> list[int]:
    """Service time of each interval, in microseconds. One that ends before its migration is over has none."""
    starts = [0, *(migration.taken + cost for migration in migrations)]
    ends = [*(migration.left for migration in migrations), horizon]
    return [max(0, end - start) for start, end in zip(starts, ends, strict=True)]


def _rounded(value: Decimal, digits: str) -> str:
    return str(value.quantize(Decimal(digits), rounding=ROUND_HALF_UP))
