"""An address that swallows whatever is sent to it."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.errors import Problem
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeNames, Target, is_node
from testbed.faults.references import dangling_or_switches
from testbed.faults.tools import filters
from testbed.plan.types import Network, Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class Blackhole(Fault):
    """In the nodes named, packets to the address are dropped: forwarded ones silently; local programs see connections
    time out, and EPERM for datagrams, as behind a packet filter.
    """

    kind: ClassVar[str] = "blackhole"
    nodes: NodeNames
    target: Annotated[Target, Field(description="What cannot be reached: a node, an address or a prefix.")]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """Each node has an address."""
        yield from dangling_or_switches(self, plan)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """A filter in each node."""
        rules = filters.matches("daddr", self._prefixes(lab))
        filters.each(self.nodes, lambda node: filters.drop(lab, node, memory, {"prerouting": rules, "output": rules}))

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The filters are there, and take a packet that the node itself sends."""
        prefixes = self._prefixes(lab)
        count = 2 * len(filters.matches("daddr", prefixes))
        return filters.verify_sending(
            lab, self.nodes, memory, count, lambda node: filters.datagram(lab, node, prefixes[0][0])
        )

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the filters away."""
        filters.each(self.nodes, lambda node: filters.remove(lab, node, memory))

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No filter is left."""
        filters.each(self.nodes, lambda node: filters.verify_removed(lab, node, memory))
        return "no filter is left"

    def _prefixes(self, lab: Lab) -> list[Network]:
        if not is_node(self.target):
            return [ip_network(self.target)]
        found = [ip_network(address) for address in filters.addresses(lab, [self.target])]
        if not found:
            raise FaultError(f"node {self.target} has no address")
        return found
