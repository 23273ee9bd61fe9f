"""A program, or all programs of a node, that end and are started again."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from testbed.errors import WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, ServiceName
from testbed.faults.tools import programs
from testbed.model.quantities import Duration

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Restart(Fault):
    """SIGTERM, SIGKILL for what does not end in time, and a new start. Over as soon as the programs run again."""

    kind: ClassVar[str] = "restart"
    momentary: ClassVar[bool] = True
    node: NodeName
    service: ServiceName = None
    within: Duration = Field(10_000_000, description="How long a program may take to end before it is killed.")
    down: Duration = Field(0, description="How long to wait before the new start.")

    def claims(self, lab: Lab) -> set[str]:
        """Whether the programs run."""
        return programs.claims(lab, self.node, self.service, "running")

    def remember(self, lab: Lab) -> Memory:
        """What runs now, by pid."""
        return programs.remember(lab, self.node, self.service)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """End and start."""
        for name in memory["names"]:
            lab.services(self.node)[name][0].signal(signal.SIGTERM)
        for name in memory["names"]:
            try:
                programs.await_none(lambda name=name: programs.members(lab, self.node, name), name, self.within / 1e6)  # type: ignore[misc]
            except WaitTimeout:
                programs.kill(lab, self.node, name)
        time.sleep(self.down / 1e6)
        programs.start_again(lab, self.node, memory["names"])

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Each runs, as another process than before."""
        seen = programs.verify_running(lab, self.node, memory["names"])
        same = [name for name, pid in memory["pids"].items() if lab.services(self.node)[name][0].pid == pid]
        if same:
            raise FaultError(f"node {self.node}: {', '.join(same)} was not started anew")
        return seen

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Start what does not run, in case the restart was broken off."""
        programs.start_again(lab, self.node, memory["names"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """All of it runs."""
        return programs.verify_running(lab, self.node, memory["names"])
