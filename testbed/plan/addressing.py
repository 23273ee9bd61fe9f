"""An address for every end of every link: the given ones first, so that allocation goes round them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from ipaddress import ip_network

from testbed.errors import Path, Problem, halves
from testbed.plan.addresses import Allocator, interface_of, parse_interface, point_to_point_length
from testbed.plan.draft import LinkDraft, NodeDraft
from testbed.plan.interfaces import Report, doubt
from testbed.plan.segments import Segment, find_segments, given_subnet, needed_length
from testbed.plan.types import Address, Interface, Network

Pair = tuple[Interface | None, Interface | None]
NONE: Pair = (None, None)


def assign_addresses(
    nodes: Mapping[str, NodeDraft],
    links: Sequence[LinkDraft],
    allocator: Allocator,
    report: Report,
    taken: Iterable[Interface] = (),
) -> list[Pair]:
    """The addresses of both ends of each link, in the order of ``links``; None at a switch.

    ``taken`` are addresses that no subnet is allocated over, such as those on ``lo``.
    """
    return _Assignment(nodes, links, allocator, report).run(taken)


class _Assignment:
    """The state of one assignment."""

    def __init__(
        self, nodes: Mapping[str, NodeDraft], links: Sequence[LinkDraft], allocator: Allocator, report: Report
    ) -> None:
        self.nodes, self.links, self.allocator, self.report = nodes, links, allocator, report
        self.segments = find_segments(nodes, links)
        self.given: dict[int, Pair] = {}
        """By number of the link."""
        self.owners: dict[Address, tuple[str, Path]] = {}
        """Of the given addresses: node, and where it stands."""
        self.clashes: list[Callable[[], Problem]] = []
        """Made once all that is given is known, and so what is free."""
        self.wrong: set[int] = set()
        """Links about whose addresses something has been said already."""
        self.used_up = False

    def run(self, taken: Iterable[Interface]) -> list[Pair]:
        segments = list({id(segment): segment for segment in self.segments.values()}.values())
        for segment in segments:
            given_subnet(segment, self.nodes, self.report)
            if segment.subnet is not None:
                self._reserve(segment.subnet, segment.owner, segment.path)
        for number, link in enumerate(self.links):
            if link.addresses is not None:
                self._given(number, link)
        for clash in self.clashes:
            self.report(clash())
        for address in taken:
            # inside a given subnet, or on several nodes, it is taken already
            self.allocator.reserve(ip_network(address.ip), "an address on lo")
        for segment in segments:
            if segment.subnet is None and segment.links and not segment.full:
                self._allocate_segment(segment)
        return [self._pair(number, link) for number, link in enumerate(self.links)]

    def _reserve(self, network: Network, owner: str, path: Path) -> bool:
        other = self.allocator.reserve(network, owner, path)
        if other is not None:
            message = f"{network} of {owner} overlaps with {other.network} of {other.owner}"
            self.clashes.append(partial(self._clash, path, message, network, other.path))
        return other is None

    def _clash(self, path: Path, message: str, network: Network, other: Path) -> Problem:
        free = self.allocator.free_after(network)
        return Problem(path, message, f"{free} is free" if free else "choose another prefix", other=other or None)

    def _given(self, number: int, link: LinkDraft) -> None:
        ends = self._parsed(link)
        if ends is None:
            self._leave_out(number, link)
            return
        switches = [node in self.segments for node in link.nodes]
        sound = (
            self._given_on_segment(link, ends, switches.index(True))
            if any(switches)
            else self._given_between(link, ends)
        )
        if sound:
            self.given[number] = ends
        else:
            self._leave_out(number, link)

    def _leave_out(self, number: int, link: LinkDraft) -> None:
        self.wrong.add(number)
        doubt(self.nodes, link)

    def _parsed(self, link: LinkDraft) -> Pair | None:
        assert link.addresses is not None
        parsed: list[Interface | None] = []
        sound = True
        for index, (text, node) in enumerate(zip(link.addresses, link.nodes, strict=True)):
            path = (*link.path, "addresses", index)
            if (text is None) != (node in self.segments):
                message = (
                    f"{node!r} needs an address too" if text is None else f"{node!r} is a switch, which has no address"
                )
                remedy = (
                    "write one for each end, or leave out `addresses`" if text is None else "write null in its place"
                )
                self.report(Problem(path, message, remedy))
                sound = False
                continue
            try:
                parsed.append(None if text is None else parse_interface(text))
            except ValueError as error:
                self.report(Problem(path, *halves(error)))
                sound = False
        return (parsed[0], parsed[1]) if sound else None

    def _given_between(self, link: LinkDraft, ends: Pair) -> bool:
        a, b = ends
        assert a is not None
        assert b is not None
        path = (*link.path, "addresses")
        if a.ip == b.ip:
            self.report(Problem((*path, 1), f"both ends have the address {a.ip}", "give each end its own"))
            return False
        if a.network != b.network:
            self.report(Problem((*path, 1), f"{a} and {b} are not in one subnet", "give both ends one subnet"))
            return False
        for index, (node, end) in enumerate(zip(link.nodes, (a, b), strict=True)):
            if end.ip in self.owners:
                owner, at = self.owners[end.ip]
                message = f"{end.ip} of {node!r} is an address of {owner!r} already"
                self.clashes.append(partial(self._clash, (*path, index), message, end.network, at))
                return False
        self.owners.update({end.ip: (node, path) for node, end in zip(link.nodes, (a, b), strict=True)})
        return self._reserve(a.network, link.owner, path)

    def _given_on_segment(self, link: LinkDraft, ends: Pair, switch: int) -> bool:
        address = ends[1 - switch]
        if address is None:
            return True  # two switches
        segment, node = self.segments[link.nodes[switch]], link.nodes[1 - switch]
        path = (*link.path, "addresses", 1 - switch)
        if segment.full:
            return False
        if segment.subnet is None:
            segment.subnet, segment.path = address.network, path
            if not self._reserve(address.network, segment.owner, path):
                segment.full = True
                return False
        if address.network != segment.subnet:
            inside = address.ip in segment.subnet
            what = "has another prefix length than" if inside else "is outside"
            right = f"write {address.ip}/{segment.subnet.prefixlen}" if inside else f"use {segment.free()}"
            message = f"{address} {what} the subnet {segment.subnet} of {segment.owner}"
            self.report(Problem(path, message, right, other=None if segment.path == path else segment.path))
            return False
        offset = int(address.ip) - int(segment.subnet.network_address)
        if offset in segment.used:
            self.clashes.append(partial(self._taken, segment, address, node, path))
            return False
        segment.used[offset] = node
        self.owners[address.ip] = (node, path)
        return True

    def _taken(self, segment: Segment, address: Interface, node: str, path: Path) -> Problem:
        owner, at = self.owners[address.ip]
        free = segment.free()
        message = f"{address.ip} of {node!r} is an address of {owner!r} already"
        return Problem(path, message, f"{free} is free" if free else "give the switch a larger subnet", other=at)

    def _allocate_segment(self, segment: Segment) -> None:
        segment.subnet = self.allocator.allocate(needed_length(segment, self.allocator), segment.owner, segment.path)
        if segment.subnet is None:
            segment.full = True
            self._say_used_up(segment.path)

    def _say_used_up(self, path: Path) -> None:
        if not self.used_up:
            self.used_up = True
            message = f"the address pool {self.allocator.pool} is used up"
            self.report(Problem(path, message, "set a larger `pool` under `defaults`"))

    def _pair(self, number: int, link: LinkDraft) -> Pair:
        if number in self.wrong:
            return NONE
        if number in self.given:
            return self.given[number]
        on = [node in self.segments for node in link.nodes]
        if all(on):
            return NONE
        if any(on):
            address = self._next_on(self.segments[link.nodes[on.index(True)]], link.nodes[on.index(False)])
            return (None, address) if on[0] else (address, None)
        subnet = self.allocator.allocate(point_to_point_length(self.allocator.pool), link.owner, link.path)
        if subnet is None:
            self._say_used_up(link.path)
            return NONE
        first = int(subnet.network_address)
        low, high = interface_of(first, subnet), interface_of(first + 1, subnet)
        kinds = [self.nodes[node].kind for node in link.nodes]
        return (high, low) if kinds == ["host", "router"] else (low, high)  # no host is called 10.0.0.0

    def _next_on(self, segment: Segment, node: str) -> Interface | None:
        if segment.full or segment.subnet is None:
            return None
        address = segment.free()
        if address is None:
            segment.full = True
            message = f"the subnet {segment.subnet} of {segment.owner} is too small for {len(segment.links)} neighbours"
            self.report(Problem(segment.path, message, "give it a larger one"))
            return None
        segment.used[segment.cursor] = node
        return address
