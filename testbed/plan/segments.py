"""Switches: which of them form one segment, and the prefix and addresses of each segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from testbed.errors import Path, Problem, halves
from testbed.plan.addresses import Allocator, interface_of, parse_network, usable
from testbed.plan.draft import LinkDraft, NodeDraft
from testbed.plan.interfaces import Report
from testbed.plan.types import Interface, Network


@dataclass(slots=True)
class Segment:
    """Switches that are joined, and who is on them."""

    switches: list[str]
    path: Path
    """Of the first switch, or of the prefix where one is given."""
    links: list[LinkDraft] = field(default_factory=list)
    """Those to hosts and routers."""
    subnet: Network | None = None
    used: dict[int, str] = field(default_factory=dict)
    """Offset to node."""
    cursor: int = 0
    full: bool = False

    @property
    def owner(self) -> str:
        """The segment in messages."""
        names = [repr(name) for name in self.switches]
        return f"switch {names[0]}" if len(names) == 1 else f"switches {', '.join(names[:-1])} and {names[-1]}"

    def free(self) -> Interface | None:
        """The lowest address that nobody has; it is not taken."""
        assert self.subnet is not None
        first, last = usable(self.subnet)
        self.cursor = max(self.cursor, first)
        while self.cursor in self.used:
            self.cursor += 1
        if self.cursor > last:
            return None
        return interface_of(int(self.subnet.network_address) + self.cursor, self.subnet)


def find_segments(nodes: Mapping[str, NodeDraft], links: Iterable[LinkDraft]) -> dict[str, Segment]:
    """The segment of each switch."""
    segments = {name: Segment([name], node.path) for name, node in nodes.items() if node.kind == "switch"}
    links = list(links)
    for link in links:
        a, b = (segments.get(node) for node in link.nodes)
        if a is not None and b is not None and a is not b:
            a.switches += b.switches
            segments.update(dict.fromkeys(b.switches, a))
    order = {name: number for number, name in enumerate(nodes)}
    for segment in {id(segment): segment for segment in segments.values()}.values():
        segment.switches.sort(key=order.__getitem__)
        segment.path = nodes[segment.switches[0]].path
    for link in links:
        on = [segments[node] for node in link.nodes if node in segments]
        if len(on) == 1:
            on[0].links.append(link)
    return segments


def given_subnet(segment: Segment, nodes: Mapping[str, NodeDraft], report: Report) -> None:
    """Set the prefix that the topology gives to one of the segment's switches, if any."""
    for name in segment.switches:
        node = nodes[name]
        if node.subnet is None:
            continue
        path = (*node.path, "subnet")
        try:
            subnet = parse_network(node.subnet)
        except ValueError as error:
            report(Problem(path, *halves(error)))
            segment.full = True  # say no more about it
            continue
        if segment.subnet is None:
            segment.subnet, segment.path = subnet, path
        elif segment.subnet != subnet:
            message = f"{segment.owner} are joined, but have the prefixes {segment.subnet} and {subnet}"
            report(Problem(path, message, "give one prefix to one of them", other=segment.path))


def needed_length(segment: Segment, allocator: Allocator) -> int:
    """Length of a prefix with room for the segment's members and a few more."""
    return allocator.pool.max_prefixlen - max(3, (len(segment.links) + 2).bit_length())
