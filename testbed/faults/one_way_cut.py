"""A link that carries packets one way only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import LinkEnds
from testbed.faults.tools import filters
from testbed.lab import links
from testbed.plan.types import End

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class OneWayCut(Fault):
    """Packets from the first to the second end of ``link`` are lost where they arrive; the other way they pass.

    Both ends keep their carrier. Where packets arrive at a switch, ARP and the like are lost too.
    """

    kind: ClassVar[str] = "one-way-cut"
    link: LinkEnds

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Drop whatever comes in at the second end."""
        end, family = self._receiver(lab)
        filters.drop(lab, end.node, memory, {"prerouting": [f'iifname "{end.ifname}"']}, family)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The rule is there, and takes a packet that is sent over the link."""
        end, family = self._receiver(lab)
        filters.verify(lab, end.node, memory, 1, family)
        sender = links.end_at(links.find(lab, *self.link), self.link[0])
        if not (sender.addresses and end.addresses):
            return "the rule is in force"  # a switch sends nothing of its own

        def send() -> bool:
            return filters.datagram(lab, sender.node, end.addresses[0].ip, device=sender.ifname)

        dropped = filters.try_out(lab, end.node, memory, send, family)
        if dropped is False and links.device(lab, end).carrier:
            raise FaultError(f"a packet from {sender.node} to {end.node} was not dropped", where=f"node {end.node}")
        return f"a packet from {sender.node} was dropped at {end.node}" if dropped else "the rule is in force"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the rule away."""
        end, family = self._receiver(lab)
        filters.remove(lab, end.node, memory, family)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No such rule."""
        end, family = self._receiver(lab)
        filters.verify_removed(lab, end.node, memory, family)
        return f"nothing is dropped at {end.node}"

    def _receiver(self, lab: Lab) -> tuple[End, str]:
        link = links.find(lab, *self.link)
        end = links.end_at(link, self.link[1])
        return end, "bridge" if lab.node(end.node).kind == "switch" else "inet"
