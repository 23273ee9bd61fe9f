"""Shortest-path routes over the layer-3 graph of a plan, and static ones beside them. Pure, deterministic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TypeVar

from testbed.errors import Path, Problem, halves
from testbed.plan.addresses import parse_address, parse_network
from testbed.plan.draft import NodeDraft, RouteDraft
from testbed.plan.interfaces import Report
from testbed.plan.types import Address, Kind, Network, Route

Parsed = TypeVar("Parsed")

EVERYTHING = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
"""The destination of a default route, by address family."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A node's interface on a subnet."""

    node: str
    ifname: str
    address: Address
    subnet: Network


@dataclass
class Layer3:
    """Who is on which subnet."""

    kinds: Mapping[str, Kind]
    by_node: dict[str, list[Attachment]] = field(default_factory=dict)
    by_subnet: dict[Network, list[Attachment]] = field(default_factory=dict)
    routers: dict[Network, list[Attachment]] = field(default_factory=dict)

    @classmethod
    def of(cls, kinds: Mapping[str, Kind], attachments: Sequence[Attachment]) -> Layer3:
        """From the list of all attachments."""
        graph = cls(kinds)
        for attachment in attachments:
            graph.by_node.setdefault(attachment.node, []).append(attachment)
            graph.by_subnet.setdefault(attachment.subnet, []).append(attachment)
            if kinds[attachment.node] == "router":
                graph.routers.setdefault(attachment.subnet, []).append(attachment)
        return graph


def compute_routes(graph: Layer3) -> dict[str, list[Route]]:
    """Routes of every node to every subnet that it is not on, by fewest hops; hosts do not forward.

    Each address family is a network of its own. A host gets a default route to the first router on its links, and a
    route to each subnet that is nearer through another router. Routers get one route a subnet, so that a packet to an
    address that nobody has is answered "unreachable" rather than passed round in a circle. Among equally short paths
    the one over the earlier link wins. Every next hop is one hop nearer to the subnet, so that there are no loops.
    """
    return {name: [route for version in (4, 6) for route in _routes_of(name, version, graph)] for name in graph.by_node}


def _routes_of(node: str, version: int, graph: Layer3) -> list[Route]:
    own = [attachment for attachment in graph.by_node[node] if attachment.subnet.version == version]
    hops = [
        (peer, attachment)
        for attachment in own
        for peer in graph.routers.get(attachment.subnet, ())
        if peer.node != node
    ]
    if not hops:
        return []
    first, interface = hops[0]
    default = Route(destination=EVERYTHING[version], via=first.address, ifname=interface.ifname)
    is_host = graph.kinds[node] == "host"
    if is_host and all(peer.node == first.node for peer, _ in hops):
        return [default]
    routes = _by_distance(node, version, graph, {attachment.subnet for attachment in own}, hops)
    if not is_host:
        return routes
    return [default, *(route for route in routes if (route.via, route.ifname) != (default.via, default.ifname))]


def _by_distance(
    node: str, version: int, graph: Layer3, known: set[Network], hops: Sequence[tuple[Attachment, Attachment]]
) -> list[Route]:
    """One route to each subnet beyond ``known``, found by a breadth-first search over the routers."""
    visited = {node}
    queue = deque((peer.node, peer, own) for peer, own in hops)
    routes: list[Route] = []
    while queue:
        at, hop, own = queue.popleft()
        if at in visited:
            continue
        visited.add(at)
        for attachment in graph.by_node[at]:
            if attachment.subnet.version != version:
                continue
            if attachment.subnet not in known:
                known.add(attachment.subnet)
                routes.append(Route(destination=attachment.subnet, via=hop.address, ifname=own.ifname))
            for further in graph.routers.get(attachment.subnet, ()):
                if further.node not in visited:
                    queue.append((further.node, hop, own))
    return routes


def static_routes(draft: NodeDraft, graph: Layer3, report: Report) -> list[Route]:
    """The routes that the topology gives to a node. What is wrong is reported and left out."""
    routes: list[Route] = []
    paths: dict[Network, Path] = {}
    if draft.kind == "switch":
        return routes
    for written in draft.routes:
        route = _static_route(draft, written, graph, report)
        if route is None:
            continue
        if route.destination in paths:
            message = f"there are two routes to {route.destination}"
            report(Problem(written.path, message, "remove one of the two", other=paths[route.destination]))
            continue
        paths[route.destination] = written.path
        routes.append(route)
    return routes


def _static_route(draft: NodeDraft, written: RouteDraft, graph: Layer3, report: Report) -> Route | None:
    to_path, via_path = (*written.path, "to"), (*written.path, "via")
    hop = _parsed(parse_address, written.via, via_path, report)
    destination = None if written.to == "default" else _parsed(parse_network, written.to, to_path, report)
    if hop is None or (destination is None and written.to != "default"):
        return None
    name = draft.node.name
    destination = destination or EVERYTHING[hop.version]
    if destination.version != hop.version:
        message = f"a route to {destination} cannot go through {hop}"
        report(Problem(via_path, message, f"write an IPv{destination.version} address"))
        return None
    own = graph.by_node.get(name, [])
    for attachment in own:
        if hop == attachment.address:
            report(Problem(via_path, f"{hop} is an address of {name!r} itself", "write its neighbour's address"))
            return None
        if destination == attachment.subnet:
            message = f"{destination} is on a link of {name!r}, which needs no route"
            report(Problem(to_path, message, "remove the route", assumes="links"))
            return None
    neighbours = [
        (peer, attachment)
        for attachment in own
        for peer in graph.by_subnet[attachment.subnet]
        if peer.node != name and peer.address.version == hop.version
    ]
    for peer, attachment in neighbours:
        if peer.address == hop:
            return Route(destination=destination, via=hop, ifname=attachment.ifname)
    if not draft.doubtful:
        known = ", ".join(f"{peer.address} ({peer.node})" for peer, _ in neighbours[:5]) or "none"
        message = f"{hop} is no neighbour of {name!r}"
        report(Problem(via_path, message, f"its neighbours: {known}", assumes="links"))
    return None


def _parsed(parse: Callable[[str], Parsed], text: str, path: Path, report: Report) -> Parsed | None:
    try:
        return parse(text)
    except ValueError as error:
        report(Problem(path, *halves(error)))
        return None
