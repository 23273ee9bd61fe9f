"""A node that is slow: a quota of processor time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, Memory
from testbed.faults.fields import NodeName
from testbed.faults.fields import limits as bounds
from testbed.faults.tools import limits
from testbed.lab import cgroups
from testbed.model.quantities import Fraction, format_fraction

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

PERIOD_US = 20_000
"""The quota is given anew so often. Longer periods would make a node freeze for as long."""
_LEAST_US = 1000
"""Shortest quota that the kernel takes."""


class CpuThrottle(Fault):
    """All processes of the node together get this share of one processor (CFS bandwidth control).

    For a plain process node it holds for the processes that run at the injection and what they start.
    """

    kind: ClassVar[str] = "cpu-throttle"
    node: NodeName
    share: Annotated[
        Fraction,
        bounds(format_fraction, _LEAST_US / PERIOD_US),
        Field(description="Share of one processor, at least 5%."),
    ]

    def claims(self, lab: Lab) -> set[str]:
        """The quota."""
        return {f"processor quota of {self.node}"}

    def remember(self, lab: Lab) -> Memory:
        """The groups that the processes are in."""
        return limits.remember(lab, self.node, "cpu", self._values())

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Set the quota."""
        limits.put(lab, self.node, "cpu", memory, self._values())

    def verify(self, lab: Lab, memory: Memory) -> str:
        """It reads so, and every process is under it."""
        return limits.verify(lab, self.node, "cpu", memory, self._values())

    def heal(self, lab: Lab, memory: Memory) -> None:
        """As before."""
        limits.lift(lab, "cpu", memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No quota is left."""
        return limits.verify_lifted(lab, "cpu", memory)

    def _values(self) -> dict[str, str]:
        quota = round(self.share * PERIOD_US)
        if cgroups.hierarchy("cpu").version == 2:
            return {"cpu.max": f"{quota} {PERIOD_US}"}
        return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)}
