"""A network that falls into parts which do not reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.errors import Problem
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.references import dangling_or_switches, named_nodes
from testbed.faults.tools import filters
from testbed.model.words import Name
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Group = Annotated[tuple[Name, ...], Field(min_length=1)]


class Partition(Fault):
    """Each node drops what comes from a node of another group, silently. Nodes in no group are not affected.

    What a node would only forward is dropped too. Packets whose source address was translated are not recognised.
    """

    kind: ClassVar[str] = "partition"
    groups: Annotated[tuple[Group, ...], Field(min_length=2, description="Lists of nodes; a node is in one of them.")]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """Each node is in one group and has an address."""
        yield from dangling_or_switches(self, plan)
        seen: set[str] = set()
        for path, node in named_nodes(self):
            if node in seen:
                yield Problem(path, f"node {node!r} is listed twice", "a node is in one group")
            seen.add(node)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """A filter in each node."""

        def cut(node: str) -> None:
            filters.drop(lab, node, memory, {"prerouting": self._rules(lab, node)})

        filters.each(self._nodes(), cut)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The filters are there, and a packet from each group to each other one is dropped if it gets so far."""
        filters.each(self._nodes(), lambda node: filters.verify(lab, node, memory, len(self._rules(lab, node))))
        pairs = [(source[0], target[0]) for source, target in permutations(self.groups, 2)]
        dropped = [pair for pair in pairs if self._dropped(lab, memory, *pair)]
        return f"filters are in force in {len(self._nodes())} nodes; packets dropped: " + (
            ", ".join(f"{source} to {target}" for source, target in dropped) or "none came to be dropped"
        )

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the filters away."""
        filters.each(self._nodes(), lambda node: filters.remove(lab, node, memory))

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No filter is left."""
        filters.each(self._nodes(), lambda node: filters.verify_removed(lab, node, memory))
        return f"no filter is left in {len(self._nodes())} nodes"

    def _nodes(self) -> list[str]:
        return [node for group in self.groups for node in group]

    def _rules(self, lab: Lab, node: str) -> list[str]:
        others = [other for group in self.groups if node not in group for other in group]
        rules = filters.matches("saddr", filters.addresses(lab, others))
        if not rules:
            raise FaultError(f"the nodes that {node} shall not reach have no address")
        return rules

    def _dropped(self, lab: Lab, memory: Memory, source: str, target: str) -> bool:
        there = filters.addresses(lab, [target])[0]
        return bool(filters.try_out(lab, target, memory, lambda: filters.datagram(lab, source, there)))
