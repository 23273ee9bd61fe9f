"""Shortest-path routes over the layer-3 graph of a plan. Pure, deterministic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from testbed.plan.types import Address, Kind, Network, Route


@dataclass(frozen=True, slots=True)
class Attachment:
    """A node's interface on a subnet."""

    node: str
    ifname: str
    address: Address
    subnet: Network


def compute_routes(kinds: Mapping[str, Kind], attachments: Sequence[Attachment]) -> dict[str, list[Route]]:
    """Routes of every node to every subnet that it is not on, by fewest hops; hosts do not forward.

    A host whose every path begins at the same neighbour gets one default route. Routers get one route a subnet, so
    that a packet to an address that nobody has is answered "unreachable" rather than passed round in a circle.
    Among equally short paths the one over the earlier link wins.
    """
    by_node: dict[str, list[Attachment]] = {name: [] for name in kinds}
    by_subnet: dict[Network, list[Attachment]] = {}
    for attachment in attachments:
        by_node[attachment.node].append(attachment)
        by_subnet.setdefault(attachment.subnet, []).append(attachment)
    return {name: _routes_of(name, kinds, by_node, by_subnet) for name in kinds if by_node[name]}


def _routes_of(
    node: str,
    kinds: Mapping[str, Kind],
    by_node: Mapping[str, list[Attachment]],
    by_subnet: Mapping[Network, list[Attachment]],
) -> list[Route]:
    hops = [
        (peer, own)
        for own in by_node[node]
        for peer in by_subnet[own.subnet]
        if peer.node != node and kinds[peer.node] == "router"
    ]
    if not hops:
        return []
    if kinds[node] == "host" and len(hops) == 1:
        peer, own = hops[0]
        everything = ip_network("0.0.0.0/0" if peer.address.version == 4 else "::/0")
        return [Route(destination=everything, via=peer.address, ifname=own.ifname)]
    known = {own.subnet for own in by_node[node]}
    visited = {node}
    queue = deque((peer.node, peer, own) for peer, own in hops)
    routes: list[Route] = []
    while queue:
        at, first_hop, own = queue.popleft()
        if at in visited:
            continue
        visited.add(at)
        for attachment in by_node[at]:
            if attachment.subnet not in known:
                known.add(attachment.subnet)
                routes.append(Route(destination=attachment.subnet, via=first_hop.address, ifname=own.ifname))
            for further in by_subnet[attachment.subnet]:
                if further.node not in visited and kinds[further.node] == "router":
                    queue.append((further.node, first_hop, own))
    return routes
