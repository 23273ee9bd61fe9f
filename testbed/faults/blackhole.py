"""An address that swallows whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.errors import Problem
from testbed.faults.base import Fault, Memory
from testbed.faults.fields import NodeNames, Prefix
from testbed.faults.references import dangling_or_switches
from testbed.faults.tools import filters
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Blackhole(Fault):
    """In the nodes named, packets to the address are dropped: forwarded ones silently; local programs see connections
    time out, and EPERM for datagrams, as behind a packet filter.
    """

    kind: ClassVar[str] = "blackhole"
    nodes: NodeNames
    address: Annotated[Prefix, Field(description="An address or a prefix.")]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """Each node has an address."""
        yield from dangling_or_switches(self, plan)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """A filter in each node."""
        word = "ip" if self.address.version == 4 else "ip6"
        rule = [f"{word} daddr {self.address}"]
        filters.each(self.nodes, lambda node: filters.drop(lab, node, memory, {"prerouting": rule, "output": rule}))

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The filters are there, and take a packet that the node itself sends."""
        return filters.verify_sending(
            lab, self.nodes, memory, 2, lambda node: filters.datagram(lab, node, self.address[0])
        )

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the filters away."""
        filters.each(self.nodes, lambda node: filters.remove(lab, node, memory))

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No filter is left."""
        filters.each(self.nodes, lambda node: filters.verify_removed(lab, node, memory))
        return "no filter is left"
