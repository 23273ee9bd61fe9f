"""Collects nodes and links from the plain part of a topology and from subsystems, and makes the plan of them.

Mistakes do not raise: each becomes a ``Problem`` at the path it comes from, so that all are reported at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface, ip_network
from typing import Any

from testbed.errors import Path, Problem
from testbed.model.topology import RESERVED_NAMES, AttachmentSpec, DefaultsSpec, ImpairmentSpec
from testbed.plan.addresses import Allocator, point_to_point_length
from testbed.plan.names import kernel_ifname, mac_address
from testbed.plan.routes import Attachment, compute_routes
from testbed.plan.types import (
    End,
    Impairment,
    Interface,
    Kind,
    Link,
    Neighbour,
    Network,
    Node,
    Plan,
    Route,
    RuntimeName,
    Service,
)

CORE = "core"
"""The router that subsystems hang on unless they are attached elsewhere."""


@dataclass
class _Node:
    node: Node
    path: Path
    subnet: Network | None = None
    routes: list[tuple[str, str, Path]] = field(default_factory=list)
    interfaces: set[str] = field(default_factory=set)


@dataclass
class _Link:
    ends: tuple[tuple[str, str], tuple[str, str]]
    forward: Impairment
    backward: Impairment
    mtu: int
    addresses: tuple[Interface, Interface] | None
    path: Path


class PlanBuilder:
    """Mutable while a topology is expanded; ``build`` makes the frozen plan."""

    def __init__(self, name: str, seed: int, description: str, defaults: DefaultsSpec) -> None:
        self.problems: list[Problem] = []
        self.defaults = defaults
        self._name, self._seed, self._description = name, seed, description
        self._nodes: dict[str, _Node] = {}
        self._links: list[_Link] = []
        self._sections: dict[str, dict[str, Any]] = {}
        try:
            pool = ip_network(defaults.pool)
        except ValueError as error:
            self.problems.append(
                Problem(("defaults", "pool"), f"not a prefix: {error}", "write one such as 10.0.0.0/8")
            )
            pool = ip_network("10.0.0.0/8")
        self._allocator = Allocator(pool)

    def problem(self, path: Path, message: str, remedy: str = "") -> None:
        """Record a mistake of the user."""
        self.problems.append(Problem(path, message, remedy))

    def node(
        self,
        name: str,
        path: Path,
        *,
        kind: Kind = "host",
        runtime: RuntimeName | None = None,
        image: str | None = None,
        subsystem: str = "",
        role: str = "",
        memory_bytes: int | None = None,
        pids: int | None = None,
        services: Sequence[Service] = (),
        subnet: str | None = None,
        routes: Sequence[tuple[str, str, Path]] = (),
    ) -> None:
        """Add a node. ``routes`` are (destination or ``default``, next hop, path); ``subnet`` is a switch's prefix."""
        if name in RESERVED_NAMES:
            self.problem(path, f"{name!r} is a reserved name", "choose another name for the node")
            return
        if name in self._nodes:
            other = self._nodes[name]
            owner = f"subsystem {other.node.subsystem!r}" if other.node.subsystem else "`nodes`"
            self.problem(path, f"there is a node {name!r} already; it comes from {owner}", "rename one of the two")
            return
        node = Node(
            name=name,
            kind=kind,
            runtime=runtime or self.defaults.runtime,
            image=image,
            subsystem=subsystem,
            role=role,
            memory_bytes=memory_bytes,
            pids=pids,
            services=tuple(services),
        )
        self._nodes[name] = _Node(node, path, self._subnet(name, subnet, kind, path), list(routes))

    def core(self) -> str:
        """The name of the core router, which is added when first asked for."""
        if CORE not in self._nodes:
            self.node(CORE, (), kind="router", runtime="process", role="core")
        return CORE

    def link(
        self,
        a: str,
        b: str,
        path: Path,
        *,
        forward: Impairment | None = None,
        backward: Impairment | None = None,
        mtu: int = 1500,
        addresses: tuple[str, str] | None = None,
    ) -> None:
        """Join two endpoints, each ``node`` or ``node:interface``. Addresses are allocated unless given."""
        ends = []
        for index, endpoint in enumerate((a, b)):
            name, _, interface = endpoint.partition(":")
            if name == CORE:
                self.core()
            end = self._endpoint(name, interface, (*path, "endpoints", index))
            if end is None:
                return
            ends.append(end)
        if ends[0][0] == ends[1][0]:
            self.problem((*path, "endpoints"), f"both endpoints are {ends[0][0]!r}", "join two different nodes")
            return
        given = self._given_addresses(addresses, (*path, "addresses")) if addresses else None
        self._links.append(
            _Link((ends[0], ends[1]), forward or Impairment(), backward or Impairment(), mtu, given, path)
        )

    def attach(self, node: str, router: str, path: Path, spec: AttachmentSpec | None = None) -> None:
        """Hang ``node`` on ``router`` (usually ``core()``) by one link. ``forward`` is from the node."""
        impairment = impairment_of(self.defaults.link, spec)
        mtu = spec.mtu if spec and "mtu" in spec.model_fields_set else self.defaults.link.mtu
        self.link(node, router, path, forward=impairment, backward=impairment, mtu=mtu)

    def section(self, name: str, data: dict[str, Any]) -> None:
        """Store what a subsystem needs at run time; plain JSON."""
        self._sections[name] = data

    def node_names(self) -> list[str]:
        """Names so far, in order."""
        return list(self._nodes)

    def build(self) -> Plan:
        """The plan. Meaningful only while ``problems`` is empty afterwards."""
        links, attachments, neighbours = self._address_links()
        computed = compute_routes({name: entry.node.kind for name, entry in self._nodes.items()}, attachments)
        nodes = []
        for name, entry in self._nodes.items():
            if len(self._nodes) > 1 and not entry.interfaces:
                self.problem(entry.path, f"node {name!r} is on no link", "add a link to it, or remove it")
            routes = self._merge_routes(entry, computed.get(name, []), attachments)
            nodes.append(
                entry.node.model_copy(update={"routes": tuple(routes), "neighbours": tuple(neighbours.get(name, ()))})
            )
        return Plan(
            name=self._name,
            seed=self._seed,
            description=self._description,
            nodes=tuple(nodes),
            links=tuple(links),
            sections=self._sections,
        )

    def _subnet(self, name: str, subnet: str | None, kind: Kind, path: Path) -> Network | None:
        if kind != "switch":
            if subnet is not None:
                self.problem((*path, "subnet"), f"{name!r} is a {kind}; only a switch has a subnet", "remove the key")
            return None
        if subnet is None:
            return None  # allocated once every fixed prefix is known
        try:
            network = ip_network(subnet)
        except ValueError as error:
            self.problem((*path, "subnet"), f"not a prefix: {error}", "write one such as 10.1.0.0/24")
            return None
        self._reserve(network, f"switch {name!r}", (*path, "subnet"))
        return network

    def _reserve(self, network: Network, owner: str, path: Path) -> None:
        other = self._allocator.reserve(network, owner)
        if other is not None:
            free = self._allocator.allocate(network.prefixlen)
            remedy = f"{free} is free" if free else "choose another prefix"
            self.problem(path, f"{network} of {owner} overlaps with the prefix of {other}", remedy)

    def _endpoint(self, name: str, interface: str, path: Path) -> tuple[str, str] | None:
        entry = self._nodes.get(name)
        if entry is None:
            from difflib import get_close_matches

            near = get_close_matches(name, self._nodes, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "add it under `nodes`"
            self.problem(path, f"there is no node {name!r}", remedy)
            return None
        if not interface:
            number = 0
            while f"eth{number}" in entry.interfaces:
                number += 1
            interface = f"eth{number}"
        elif interface in entry.interfaces:
            self.problem(path, f"interface {interface!r} of {name!r} is on another link already", "name another one")
            return None
        entry.interfaces.add(interface)
        return name, interface

    def _given_addresses(self, addresses: tuple[str, str], path: Path) -> tuple[Interface, Interface] | None:
        parsed: list[Interface] = []
        for index, text in enumerate(addresses):
            try:
                if "/" not in text:
                    raise ValueError(f"{text!r} has no prefix length")
                parsed.append(ip_interface(text))
            except ValueError as error:
                self.problem((*path, index), f"not an address: {error}", "write one such as 10.0.0.1/30")
        if len(parsed) != 2:
            return None
        if parsed[0].network != parsed[1].network:
            self.problem(path, f"{parsed[0]} and {parsed[1]} are not in the same subnet", "give both ends one subnet")
            return None
        if parsed[0].ip == parsed[1].ip:
            self.problem(path, f"both ends have the address {parsed[0].ip}", "give each end its own")
            return None
        return parsed[0], parsed[1]

    def _address_links(self) -> tuple[list[Link], list[Attachment], dict[str, list[Neighbour]]]:
        for link in self._links:  # fixed prefixes first, so that allocation goes round them
            if link.addresses:
                names = " and ".join(repr(node) for node, _ in link.ends)
                if not any(self._is_switch(node) for node, _ in link.ends):
                    self._reserve(link.addresses[0].network, f"the link of {names}", (*link.path, "addresses"))
        segments = self._segments()
        used: dict[Network, set[int]] = {}
        links: list[Link] = []
        attachments: list[Attachment] = []
        neighbours: dict[str, list[Neighbour]] = {}
        for link in self._links:
            addresses = self._link_addresses(link, segments, used)
            ends = [
                End(
                    node=node,
                    interface=interface,
                    ifname=kernel_ifname(interface),
                    mac=mac_address(node, interface),
                    addresses=() if address is None else (address,),
                )
                for (node, interface), address in zip(link.ends, addresses, strict=True)
            ]
            links.append(Link(a=ends[0], b=ends[1], mtu=link.mtu, forward=link.forward, backward=link.backward))
            for end, peer in ((ends[0], ends[1]), (ends[1], ends[0])):
                for address in end.addresses:
                    attachments.append(Attachment(end.node, end.ifname, address.ip, address.network))
                if end.addresses:
                    for address in peer.addresses:
                        entry = Neighbour(address=address.ip, mac=peer.mac, ifname=end.ifname)
                        neighbours.setdefault(end.node, []).append(entry)
        return links, attachments, neighbours

    def _is_switch(self, node: str) -> bool:
        return self._nodes[node].node.kind == "switch"

    def _segments(self) -> dict[str, Network]:
        """The subnet of each switch; switches that are joined share one."""
        groups: dict[str, set[str]] = {name: {name} for name in self._nodes if self._is_switch(name)}
        for link in self._links:
            a, b = link.ends[0][0], link.ends[1][0]
            if a in groups and b in groups and groups[a] is not groups[b]:
                groups[a] |= groups[b]
                for member in groups[a]:
                    groups[member] = groups[a]
        subnets: dict[str, Network] = {}
        for name, group in groups.items():
            if name in subnets:
                continue
            given = [self._nodes[member].subnet for member in sorted(group) if self._nodes[member].subnet]
            members = sum(node in group for link in self._links for node, _ in link.ends)
            length = self._allocator.pool.max_prefixlen - max(3, (members + 2).bit_length())
            subnet = given[0] if given else self._allocator.allocate(length)
            if subnet is None:
                self.problem(self._nodes[name].path, "the address pool is used up", "set a larger `defaults.pool`")
                continue
            subnets.update(dict.fromkeys(group, subnet))
        return subnets

    def _link_addresses(
        self, link: _Link, segments: dict[str, Network], used: dict[Network, set[int]]
    ) -> tuple[Interface | None, Interface | None]:
        switches = [node for node, _ in link.ends if node in segments]
        if not switches:
            if link.addresses:
                return link.addresses
            length = point_to_point_length(self._allocator.pool)
            subnet = self._allocator.allocate(length)
            if subnet is None:
                self.problem(link.path, "the address pool is used up", "set a larger `defaults.pool`")
                return None, None
            return ip_interface((int(subnet[0]), length)), ip_interface((int(subnet[1]), length))
        if len(switches) == 2:
            return None, None
        subnet = segments[switches[0]]
        taken = used.setdefault(subnet, set())
        offset = 1
        while offset in taken:
            offset += 1
        taken.add(offset)
        if offset >= subnet.num_addresses - 1:
            self.problem(
                link.path, f"the subnet {subnet} of {switches[0]!r} is used up", "give the switch a larger one"
            )
            return None, None
        address = ip_interface((int(subnet[offset]), subnet.prefixlen))
        return (None, address) if link.ends[0][0] in segments else (address, None)

    def _merge_routes(self, entry: _Node, computed: list[Route], attachments: list[Attachment]) -> list[Route]:
        own = [item for item in attachments if item.node == entry.node.name]
        explicit: list[Route] = []
        for to, via, path in entry.routes:
            route = self._explicit_route(entry.node.name, to, via, path, own)
            if route:
                explicit.append(route)
        fixed = {route.destination for route in explicit}
        return [*explicit, *(route for route in computed if route.destination not in fixed)]

    def _explicit_route(self, node: str, to: str, via: str, path: Path, own: list[Attachment]) -> Route | None:
        try:
            hop = ip_interface(via).ip
        except ValueError as error:
            self.problem((*path, "via"), f"not an address: {error}", "write the next hop's address, such as 10.0.0.1")
            return None
        try:
            everything = "0.0.0.0/0" if hop.version == 4 else "::/0"
            destination = ip_network(everything if to == "default" else to)
        except ValueError as error:
            self.problem((*path, "to"), f"not a prefix: {error}", "write one such as 10.9.0.0/16, or `default`")
            return None
        for attachment in own:
            if hop in attachment.subnet and hop != attachment.address:
                return Route(destination=destination, via=hop, ifname=attachment.ifname)
        subnets = ", ".join(str(item.subnet) for item in own) or "none"
        self.problem((*path, "via"), f"{hop} is on no link of {node!r}", f"its subnets: {subnets}")
        return None


def impairment_of(*specs: ImpairmentSpec | None) -> Impairment:
    """The impairment of one direction: of each property the value of the last spec that sets it."""
    names = {"delay": "delay_us", "jitter": "jitter_us", "rate": "rate_bps"}
    values: dict[str, Any] = {}
    for spec in specs:
        for key in ImpairmentSpec.model_fields:
            value = getattr(spec, key, None)
            if value is not None:
                values[names.get(key, key)] = value
    return Impairment(**values)
