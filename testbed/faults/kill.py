"""A program, or all of a node, that is killed, and started again when the fault is healed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, ServiceName
from testbed.faults.tools import programs
from testbed.lab.ownership import describe

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Kill(Fault):
    """SIGKILL of one program with all that it has started, or of everything in a node: as if its power was cut.

    The links of the node stay up. Healing starts the programs that ran.
    """

    kind: ClassVar[str] = "kill"
    node: NodeName
    service: ServiceName = None

    def claims(self, lab: Lab) -> set[str]:
        """Whether the programs run."""
        return programs.claims(lab, self.node, self.service, "running")

    def remember(self, lab: Lab) -> Memory:
        """What runs now."""
        names = programs.running(lab, self.node, self.service)
        if not names and not programs.members(lab, self.node, self.service):
            raise FaultError(f"nothing runs in node {self.node}")
        return {"names": names}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Kill."""
        programs.kill(lab, self.node, self.service)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """No process is left."""
        if left := programs.members(lab, self.node, self.service):
            raise FaultError(f"still there: {describe(left)}")
        return f"gone: {', '.join(memory['names']) or 'all processes'}"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Start again what ran."""
        programs.start_again(lab, self.node, memory["names"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """All of it runs."""
        return programs.verify_running(lab, self.node, memory["names"])
