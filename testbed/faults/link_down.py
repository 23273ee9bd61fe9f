"""A link that carries nothing: its two interfaces are set down."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import LinkEnds
from testbed.lab import links

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class LinkDown(Fault):
    """Both ends see the loss of carrier, as with a cable that is pulled out."""

    kind: ClassVar[str] = "link-down"
    link: LinkEnds

    def claims(self, lab: Lab) -> set[str]:
        """Whether the link is up."""
        return {f"state of link {links.find(lab, *self.link).name}"}

    def remember(self, lab: Lab) -> Memory:
        """The link must be up."""
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
        """Both ends have a carrier and what the plan gives them."""
        link = links.find(lab, *self.link)
        for end in (link.a, link.b):
            if not links.device(lab, end).carrier:
                raise FaultError(f"link {link.name} does not carry: {end.interface} of {end.node} has no carrier")
            if lacks := links.missing(lab, end):
                raise FaultError(f"{end.interface} of {end.node} lacks {', '.join(lacks)}")
        return "both interfaces have a carrier"
