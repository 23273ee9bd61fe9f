"""A container that is killed and made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory, make_fault
from testbed.faults.fields import NodeName
from testbed.faults.journal import Journal
from testbed.faults.references import named_nodes
from testbed.faults.tools import programs
from testbed.lab import links
from testbed.runtime.container import ContainerRuntime

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Recreate(Fault):
    """The node's container is removed with all that it wrote outside of the node's folder; a new one gets its links,
    and its programs are started. Over as soon as they run.
    """

    kind: ClassVar[str] = "recreate"
    momentary: ClassVar[bool] = True
    node: NodeName

    def claims(self, lab: Lab) -> set[str]:
        """The programs of the node."""
        return programs.claims(lab, self.node, None, "running")

    def remember(self, lab: Lab) -> Memory:
        """What runs. Another fault that is at work in the node would vanish without being healed."""
        if lab.node(self.node).runtime != "container":
            raise FaultError(f"node {self.node} is a plain process", remedy="give it `runtime: container`")
        for entry in Journal(lab.folder).entries():
            others = (node for _, node in named_nodes(make_fault(entry.kind, entry.settings)))
            if entry.memory is not None and self.node in others:
                raise FaultError(f"fault {entry.id} is at work in node {self.node}", remedy="heal that one first")
        return {"names": programs.running(lab, self.node, None), "first": programs.first_process(lab, self.node)}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Remove, make, wire, start."""
        runtime, place = lab.runtime(self.node), lab.place(self.node)
        assert isinstance(runtime, ContainerRuntime)
        runtime.remove_node(place)
        pids = runtime.create([place])
        links.rewire(lab, self.node, pids[self.node])
        programs.start_again(lab, self.node, memory["names"])

    def verify(self, lab: Lab, memory: Memory) -> str:
        """It is another container, wired and at work."""
        if programs.first_process(lab, self.node) == memory["first"]:
            raise FaultError(f"node {self.node} still has its old container")
        return self.verify_healed(lab, memory)

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Once more, if it was broken off."""
        try:
            self.verify_healed(lab, memory)
        except Exception:  # whatever is wrong with it, a new one is the remedy
            self.inject(lab, memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """All links carry and have what the plan gives them at both ends; the programs run."""
        for link in lab.plan.links_of(self.node):
            for end in (link.a, link.b):
                if not links.device(lab, end).carrier:
                    raise FaultError(f"{end.interface} of {end.node} has no carrier")
                if lacks := links.missing(lab, end):
                    raise FaultError(f"{end.interface} of {end.node} lacks {', '.join(lacks)}")
        return programs.verify_running(lab, self.node, memory["names"])
