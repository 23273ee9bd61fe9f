"""The campus is an autonomous system of its own and announces its prefix to every network: nothing to redirect.

Networks are peers of each other over the exchange, and the campus is a customer of all. The campus router reflects the
routes of its border routers (RFC 4456). No route between systems is written: bird2 finds all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.edge.bgp import bird, control
from testbed.edge.bgp.spec import FIRST_ASN
from testbed.edge.dns.ask import resolve
from testbed.edge.plan import names
from testbed.edge.plan.world import World
from testbed.model.quantities import SECOND
from testbed.plan.types import Plan
from testbed.runtime.base import UNPRIVILEGED_ID

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.lab.lab import Lab
    from testbed.plan.builder import PlanBuilder
    from testbed.progress import Progress

__all__ = ["expand", "resolve", "sockets", "speakers", "start"]


def expand(world: World, build: PlanBuilder) -> None:
    """Nothing more than routers; that their routes are left to them is said in ``expand`` of the campus."""


def start(edge: Edge, progress: Progress) -> None:
    """Start the speakers and wait until all sessions are up and every router knows every prefix."""
    progress.update("BGP", 0, 1)
    timers = bird.Timers(edge.spec.bgp.hold // SECOND, edge.spec.bgp.keepalive // SECOND)
    for node, speaker in speakers(edge.lab.plan, edge.world).items():
        path = edge.lab.node_folder(node) / "bird.conf"
        path.write_text(bird.configuration(speaker, timers))
        os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        edge.lab.spawn(node, bird.SERVICE)
    where = sockets(edge.lab, edge.world)
    control.await_sessions(where)
    control.await_all(lambda: lacking(edge.world, where), "every router to know every prefix", control.LIMIT)
    progress.update("BGP", 1, 1)


def sockets(lab: Lab, world: World) -> dict[str, Path]:
    """The control socket of every bird, by node."""
    return {node: lab.node_folder(node) / "bird.ctl" for node in systems(world)}


def systems(world: World) -> dict[str, int]:
    """The autonomous system of every router that speaks BGP."""
    campus = [names.CAMPUS, *(network.border for network in world.networks)]
    return dict.fromkeys(campus, world.spec.bgp.asn) | {
        network.name: FIRST_ASN + network.number - 1 for network in world.networks
    }


def own_prefixes(world: World) -> dict[str, tuple[IPv4Network, ...]]:
    """What each router announces as its own."""
    return {names.CAMPUS: (world.campus,)} | {network.name: network.prefixes for network in world.networks}


def speakers(plan: Plan, world: World) -> dict[str, bird.Speaker]:
    """Who speaks to whom: all routers that share a link."""
    numbers, own = systems(world), own_prefixes(world)
    borders = {network.border for network in world.networks}
    found = {}
    for node, asn in numbers.items():
        sessions = []
        for link in plan.links_of(node):
            here, there = link.end(node), link.peer(node)
            if there.node not in numbers:
                continue
            relation: bird.Relation = "peer"
            if numbers[there.node] == asn:
                relation = "internal"
            elif node in borders:
                relation = "provider"
            elif there.node in borders:
                relation = "customer"
            local, remote = (IPv4Address(int(end.addresses[0].ip)) for end in (here, there))
            reflect = node == names.CAMPUS
            sessions.append(bird.Session(there.node, local, remote, numbers[there.node], relation, reflect))
        identity = IPv4Address(int(plan.address(node)))
        found[node] = bird.Speaker(identity, asn, tuple(sessions), own.get(node, ()))
    return found


def lacking(world: World, where: Mapping[str, Path]) -> str:
    """Which router has no route to which prefix, in words; empty if all have all."""
    missing = []
    for node, path in where.items():
        known = control.prefixes(path)
        missing += [
            f"{node} knows no way to {prefix}"
            for owner, prefixes in own_prefixes(world).items()
            for prefix in prefixes
            if owner != node and str(prefix) not in known
        ]
    return "; ".join(missing[:5])
