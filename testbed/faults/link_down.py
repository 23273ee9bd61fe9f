"""A link that carries nothing: its two interfaces are set down."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory
from testbed.lab import links

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class LinkDown(Fault):
    """Both ends see the loss of carrier, as with a cable that is pulled out."""

    kind: ClassVar[str] = "link-down"
    link: tuple[str, str]

    def remember(self, lab: Lab) -> Memory:
        """The link must exist and be up."""
        link = links.find(lab, *self.link)
        if not all(links.device(lab, end).up for end in (link.a, link.b)):
            raise FaultError(f"link {link.name} is down already")
        return {}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Down at both ends."""
        link = links.find(lab, *self.link)
        for end in (link.a, link.b):
            links.set_admin_state(lab, end, up=False)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Neither end has a carrier."""
        link = links.find(lab, *self.link)
        carrying = [end.interface for end in (link.a, link.b) if links.device(lab, end).carrier]
        if carrying:
            raise FaultError(f"link {link.name} still carries: {', '.join(carrying)} has a carrier")
        return "both interfaces are down"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Up again, with the plan's routes and neighbours."""
        link = links.find(lab, *self.link)
        for end in (link.a, link.b):
            links.set_admin_state(lab, end, up=True)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """Both ends have a carrier, and both nodes have what the plan gives them."""
        from testbed.net.build import verify

        link = links.find(lab, *self.link)
        for end in (link.a, link.b):
            if not links.device(lab, end).carrier:
                raise FaultError(f"link {link.name} does not carry again: {end.interface} of {end.node} has no carrier")
        for end in (link.a, link.b):
            node = lab.plan.node(end.node)
            links.in_node(lab, end.node, lambda netlink, node=node: verify(lab.plan, node, netlink))  # type: ignore[misc]
        return "both interfaces have a carrier"
