"""What links carried, from the interfaces' own counters, and the way that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.net.namespace import inside

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.plan.types import Plan

Counters = Mapping[tuple[str, str], tuple[int, int]]
"""By node and kernel interface name: bytes received and sent since it was made."""


def counters(lab: Lab, nodes: list[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """The counters of every interface of some nodes."""
    found = {}
    for node in nodes:
        text = inside(lab.namespace(node), lambda: Path("/proc/thread-self/net/dev").read_text())
        for line in text.splitlines()[2:]:
            name, _, numbers = line.partition(":")
            fields = numbers.split()
            found[node, name.strip()] = int(fields[0]), int(fields[8])
    return found


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes that a link carried in a time, headers included."""

    a: str
    b: str
    there: int
    """From ``a`` to ``b``."""
    back: int

    @property
    def total(self) -> int:
        """Both directions."""
        return self.there + self.back

    def towards(self, node: str) -> int:
        """Bytes that came in at one end."""
        return self.there if node == self.b else self.back


def carried(plan: Plan, before: Counters, after: Counters) -> list[Carried]:
    """What every link carried between two readings of the nodes of which at least one end was read."""
    found = []
    for link in plan.links:
        for end, sign in ((link.a, False), (link.b, True)):
            key = (end.node, end.ifname)
            if key in before and key in after:
                received, sent = (after[key][i] - before[key][i] for i in (0, 1))
                there, back = (received, sent) if sign else (sent, received)
                found.append(Carried(link.a.node, link.b.node, there, back))
                break
    return found


def way_of(links: list[Carried], client: str, least: int) -> list[str]:
    """The nodes from ``client`` on along which at least ``least`` bytes came to it, one after the other.

    Right while nothing else carries so much; where several links do, the one that carried most.
    """
    way, at = [client], client
    while True:
        onward = [
            (link.towards(at), other)
            for link in links
            if at in (link.a, link.b) and (other := link.a if at == link.b else link.b) not in way
        ]
        most, best = max(onward, default=(0, ""))
        if most < least:
            return way
        way.append(best)
        at = best
