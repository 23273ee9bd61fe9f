"""A program, or all programs of a node, asked to end, and started again when the fault is healed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from testbed.errors import WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, ServiceName
from testbed.faults.tools import programs
from testbed.model.quantities import Duration

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Stop(Fault):
    """SIGTERM: an orderly end. A program that does not end within the time makes the fault fail."""

    kind: ClassVar[str] = "stop"
    node: NodeName
    service: ServiceName = None
    within: Duration = Field(10_000_000, description="How long a program may take to end.")

    def claims(self, lab: Lab) -> set[str]:
        """Whether the programs run."""
        return programs.claims(lab, self.node, self.service, "running")

    def remember(self, lab: Lab) -> Memory:
        """What runs now."""
        return programs.remember(lab, self.node, self.service)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Ask each program, and wait until it and what it started is gone."""
        for name in memory["names"]:
            lab.services(self.node)[name][0].signal(signal.SIGTERM)
        try:
            programs.await_none(lambda: self._left(lab, memory), "the programs to end on SIGTERM", self.within / 1e6)
        except WaitTimeout as error:
            raise FaultError(str(error), where=f"node {self.node}", remedy="allow more time by `within`") from None

    def verify(self, lab: Lab, memory: Memory) -> str:
        """None of them is left."""
        if left := self._left(lab, memory):
            raise FaultError(f"node {self.node}: {len(left)} processes are still there")
        return f"ended: {', '.join(memory['names'])}"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Start again what ran.

        A program that has not ended yet is about to: the signal cannot be taken back, and a paused one has it still
        before it. It is killed first, so that it does not end when all is taken for healed; not if it ignores SIGTERM.
        """
        known = lab.services(self.node)
        for name, pid in memory["pids"].items():
            if known[name][0].pid == pid and known[name][0].alive() and not programs.ignores(pid, signal.SIGTERM):
                programs.kill(lab, self.node, name)
        programs.start_again(lab, self.node, memory["names"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """All of it runs."""
        return programs.verify_running(lab, self.node, memory["names"])

    def _left(self, lab: Lab, memory: Memory) -> programs.Pids:
        left: programs.Pids = {}
        for name in memory["names"]:
            left.update(programs.members(lab, self.node, name))
        return left
