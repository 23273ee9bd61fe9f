"""A node that is short of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, Memory
from testbed.faults.fields import NodeName
from testbed.faults.fields import limits as bounds
from testbed.faults.tools import limits
from testbed.lab import cgroups
from testbed.model.quantities import Size, format_size_bytes

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

PAGE = 4096


class MemoryLimit(Fault):
    """All processes of the node together get this much; one that asks for more is killed by the kernel.

    For a plain process node it holds for the processes that run at the injection and what they start, and counts what
    they ask for from then on. A container that uses more already does not take the limit, and the fault fails.
    """

    kind: ClassVar[str] = "memory-limit"
    node: NodeName
    limit: Annotated[Size, bounds(format_size_bytes, 2**20), Field(description="At least 1MiB.")]

    def claims(self, lab: Lab) -> set[str]:
        """The limit."""
        return {f"memory limit of {self.node}"}

    def remember(self, lab: Lab) -> Memory:
        """The groups that the processes are in."""
        return limits.remember(lab, self.node, "memory", self._values())

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Set the limit."""
        limits.put(lab, self.node, "memory", memory, self._values())

    def verify(self, lab: Lab, memory: Memory) -> str:
        """It reads so, and every process is under it."""
        return limits.verify(lab, self.node, "memory", memory, self._values())

    def heal(self, lab: Lab, memory: Memory) -> None:
        """As before."""
        limits.lift(lab, "memory", memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No limit of ours is left."""
        return limits.verify_lifted(lab, "memory", memory)

    def _values(self) -> dict[str, str]:
        name = "memory.max" if cgroups.hierarchy("memory").version == 2 else "memory.limit_in_bytes"
        return {name: str(self.limit // PAGE * PAGE)}
