"""A link that takes smaller packets only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import LinkEnds
from testbed.lab import links
from testbed.plan.types import Link

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

LEAST_IPV6 = 1280
"""Below it the kernel takes IPv6 away from an interface (RFC 8200 section 5)."""


class MtuShrink(Fault):
    """Both ends get a smaller MTU. Routers tell senders so by ICMP."""

    kind: ClassVar[str] = "mtu-shrink"
    link: LinkEnds
    mtu: Annotated[int, Field(strict=True, ge=68, le=65535, description="Largest packet, bytes.")]

    def claims(self, lab: Lab) -> set[str]:
        """The MTU."""
        return {f"MTU of link {links.find(lab, *self.link).name}"}

    def remember(self, lab: Lab) -> Memory:
        """The MTU of both ends now."""
        link = links.find(lab, *self.link)
        now = [links.device(lab, end).mtu for end in (link.a, link.b)]
        if self.mtu >= min(now):
            raise FaultError(f"the MTU of link {link.name} is {min(now)}, which {self.mtu} does not shrink")
        if self.mtu < LEAST_IPV6 and any(a.version == 6 for end in (link.a, link.b) for a in end.addresses):
            raise FaultError(f"link {link.name} has IPv6 addresses, which need an MTU of {LEAST_IPV6} or more")
        return {"mtu": now}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Shrink both ends."""
        self._set(lab, [self.mtu, self.mtu])

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Both ends read so."""
        return self._read(lab, [self.mtu, self.mtu])

    def heal(self, lab: Lab, memory: Memory) -> None:
        """As before."""
        self._set(lab, memory["mtu"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """Both ends read as before."""
        return self._read(lab, memory["mtu"])

    def _set(self, lab: Lab, sizes: list[int]) -> None:
        link = self._link(lab)
        for end, size in zip((link.a, link.b), sizes, strict=True):
            links.set_mtu(lab, end, size)

    def _read(self, lab: Lab, sizes: list[int]) -> str:
        link = self._link(lab)
        for end, size in zip((link.a, link.b), sizes, strict=True):
            if (found := links.device(lab, end).mtu) != size:
                raise FaultError(f"the MTU of {end.interface} reads {found} after {size} was set", where=end.node)
        return f"the MTU is {sizes[0]}"

    def _link(self, lab: Lab) -> Link:
        return links.find(lab, *self.link)
