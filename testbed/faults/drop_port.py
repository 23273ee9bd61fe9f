"""A port that is closed on the way, silently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from testbed.errors import Problem
from testbed.faults.base import Fault, Memory
from testbed.faults.fields import NodeNames, Port
from testbed.faults.references import dangling_or_switches
from testbed.faults.tools import filters
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class DropPort(Fault):
    """No packet to the port enters, passes or leaves the nodes named. Inside a node, over loopback, it works."""

    kind: ClassVar[str] = "drop-port"
    nodes: NodeNames
    port: Port
    protocol: Literal["tcp", "udp"] = Field("tcp", description="`tcp` or `udp`.")

    def check(self, plan: Plan) -> Iterator[Problem]:
        """Each node has an address."""
        yield from dangling_or_switches(self, plan)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """A filter in each node."""
        rule = f"{self.protocol} dport {self.port}"
        rules = {"prerouting": [f'iifname != "lo" {rule}'], "output": [f'oifname != "lo" {rule}']}
        filters.each(self.nodes, lambda node: filters.drop(lab, node, memory, rules))

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The filters are there, and take a packet that the node itself sends to a neighbour."""
        return filters.verify_sending(lab, self.nodes, memory, 2, lambda node: self._send(lab, node))

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the filters away."""
        filters.each(self.nodes, lambda node: filters.remove(lab, node, memory))

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No filter is left."""
        filters.each(self.nodes, lambda node: filters.verify_removed(lab, node, memory))
        return "no filter is left"

    def _send(self, lab: Lab, node: str) -> bool:
        peers = filters.addresses(lab, [link.peer(node).node for link in lab.plan.links_of(node)])
        if not peers:
            return False
        send = filters.connect if self.protocol == "tcp" else filters.datagram
        return send(lab, node, peers[0], self.port)
