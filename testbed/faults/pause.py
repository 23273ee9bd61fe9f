"""A node, or one of its programs, that stands still."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, ServiceName
from testbed.faults.tools import programs
from testbed.lab.ownership import describe

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Pause(Fault):
    """SIGSTOP of every process: connections stay open and nobody answers, as with a machine that hangs."""

    kind: ClassVar[str] = "pause"
    node: NodeName
    service: ServiceName = None

    def claims(self, lab: Lab) -> set[str]:
        """Whether the processes are stopped."""
        return programs.claims(lab, self.node, self.service, "pause")

    def remember(self, lab: Lab) -> Memory:
        """Processes that somebody else has stopped already; they are not ours to continue."""
        programs.running(lab, self.node, self.service)
        found = programs.members(lab, self.node, self.service)
        if not found:
            raise FaultError(f"nothing runs in node {self.node}")
        return {"stopped": [pid for pid in found if programs.state(pid) in "Tt"]}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Stop everything, and again what was started meanwhile."""

        def moving() -> list[int]:
            found = programs.members(lab, self.node, self.service)
            left = {pid: started for pid, started in found.items() if programs.state(pid) not in ("T", "t", "")}
            programs.send(left, signal.SIGSTOP)
            return list(left)

        programs.await_none(moving, f"the processes of node {self.node} to stop", 5)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Every process is in state T."""
        found = programs.members(lab, self.node, self.service)
        moving = [pid for pid in found if programs.state(pid) not in ("T", "t", "")]
        if moving or not found:
            raise FaultError(f"not stopped: {describe(moving) or 'there is no process'}", where=f"node {self.node}")
        return f"{len(found)} processes are stopped"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Continue."""
        ours = {pid: start for pid, start in self._stopped(lab).items() if pid not in memory["stopped"]}
        programs.send(ours, signal.SIGCONT)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No process is stopped but those that were before."""

        def left() -> list[int]:
            return [pid for pid in self._stopped(lab) if pid not in memory["stopped"]]

        programs.await_none(left, f"the processes of node {self.node} to go on", 5)
        return "no process is stopped"

    def _stopped(self, lab: Lab) -> programs.Pids:
        if self.service is not None and self.service not in lab.services(self.node):
            return {}
        found = programs.members(lab, self.node, self.service)
        return {pid: started for pid, started in found.items() if programs.state(pid) in ("T", "t")}
