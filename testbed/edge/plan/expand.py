"""The campus and its networks as nodes, links and routes: what all modes share. Pure.

Every address and route is explicit where the way matters: the campus' links to providers are no part of the computed
routes, so that without a mode everything goes through the education network.
"""

from __future__ import annotations

from itertools import pairwise

from testbed.edge import webserver
from testbed.edge.filters import requests
from testbed.edge.plan import names
from testbed.edge.plan.world import Network, World
from testbed.edge.redirector import UNPRIVILEGED_PORTS
from testbed.edge.spec import EdgeSpec, UplinkSpec
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Impairment

PATH = ("edge",)


def expand(world: World, build: PlanBuilder) -> None:
    """Add networks, exchange, campus and sites. Routes between systems are left to BGP in the mode of that name."""
    for network in world.networks:
        _network(network, build)
    _exchange(world, build)
    _campus(world, build)
    for network in world.networks:
        _border(world, network, build)
    _inner(world, build)
    if not _by_bgp(world):
        _routes(world, build)


def stand_in(spec: EdgeSpec, build: PlanBuilder) -> None:
    """Routers by their names alone, for a section with mistakes: what else refers to them is no further mistake."""
    routers = [*spec.isps, spec.education.name, names.CAMPUS, names.INNER]
    routers = [name for name in dict.fromkeys(routers) if name not in build.node_names()]
    for name in routers:
        build.node(name, PATH, kind="router", subsystem="edge")
    for a, b in pairwise(routers):
        build.link(a, b, PATH)


def _path(network: Network) -> tuple[str, ...]:
    return (*PATH, "education") if network.educational else (*PATH, "isps", network.name)


def _network(network: Network, build: PlanBuilder) -> None:
    """A network's router, users and resolver."""
    path = _path(network)
    build.node(network.name, path, kind="router", subsystem="edge", role="network")
    for client in network.clients:
        build.node(client.node, path, runtime="process", subsystem="edge", role="client")
        both = Impairment(delay_us=client.delay_us, rate_bps=network.rate_bps)
        ends = (str(client.own), str(client.router))
        build.link(f"{client.node}:eth0", network.name, path, forward=both, backward=both, addresses=ends)
    build.node(network.resolver, path, runtime="process", subsystem="edge", role="resolver")
    build.sysctl(network.resolver, *UNPRIVILEGED_PORTS)
    ends = (str(network.resolver_own), str(network.resolver_router))
    build.link(f"{network.resolver}:eth0", network.name, path, addresses=ends)


def _exchange(world: World, build: PlanBuilder) -> None:
    """A link between each two networks."""
    for a, b, between in world.between():
        build.link(a.name, b.name, (*PATH, "exchange"), forward=between, backward=between, routed=not _by_bgp(world))


def _campus(world: World, build: PlanBuilder) -> None:
    """The campus router, the web servers with every site's address, and the host of the name server."""
    build.node(names.CAMPUS, PATH, kind="router", subsystem="edge", role="campus")
    for server, spec in world.spec.campus.servers.items():
        path = (*PATH, "campus", "servers", server)
        build.node(server, path, runtime="process", subsystem="edge", role="server", services=(webserver.SERVICE,))
        build.sysctl(server, *UNPRIVILEGED_PORTS)
        build.file(server, "nginx.conf", webserver.configuration(world, server, requests.of_server(world.spec.filter)))
        both = Impairment(delay_us=spec.delay, rate_bps=spec.rate) if spec else Impairment()
        build.link(f"{server}:{names.SITES}", f"{names.CAMPUS}:{server}", path, forward=both, backward=both)
    build.node(names.NAME_SERVER, PATH, runtime="process", subsystem="edge", role="name server")
    build.sysctl(names.NAME_SERVER, *UNPRIVILEGED_PORTS)
    build.link(f"{names.NAME_SERVER}:eth0", f"{names.CAMPUS}:{names.NAME_SERVER}", PATH)
    for address, server in {site.address: site.server for site in world.sites}.items():
        build.loopback(server, f"{address}/32")
        build.route(names.CAMPUS, f"{address}/32", server)


def _border(world: World, network: Network, build: PlanBuilder) -> None:
    """The campus' border router at a network."""
    path = _path(network)
    build.node(network.border, path, kind="router", subsystem="edge", role="border router")
    both = _impairment(network.uplink)
    routed = network.educational and not _by_bgp(world)
    build.link(
        f"{network.name}:{names.CAMPUS}",
        f"{network.border}:{names.UPLINK}",
        (*path, "uplink"),
        forward=both,
        backward=both,
        addresses=(str(network.uplink_router), str(network.uplink_border)),
        routed=routed,
    )
    build.link(f"{network.border}:{names.INSIDE}", f"{names.CAMPUS}:{network.name}", path, routed=routed)
    if world.spec.mode != "cdn":
        for address in network.publics:
            build.loopback(network.border, f"{address}/32")
            build.route(network.name, f"{address}/32", network.border)
    if not _by_bgp(world):
        build.route(network.border, str(world.campus), names.CAMPUS)
        build.route(network.border, "default", network.name)


def _inner(world: World, build: PlanBuilder) -> None:
    """The inner router, beside the education network's border router."""
    build.node(names.INNER, PATH, kind="router", subsystem="edge", role="inner router")
    ends = (str(world.education.listener), str(world.education.inner_end))
    build.link(f"{world.education.border}:{names.INNER}", f"{names.INNER}:cernet", PATH, addresses=ends)
    build.route(names.INNER, str(world.campus), world.education.border)


def _routes(world: World, build: PlanBuilder) -> None:
    """Everything to the campus goes by the education network; public addresses are in the providers' networks."""
    education = world.education
    build.route(education.name, str(world.campus), education.border)
    for network in world.isps:
        build.route(network.name, str(world.campus), education.name)
        build.route(network.border, world.spec.redirect.addresses, names.CAMPUS)
    for owner in world.isps:
        holding = [p for p in owner.prefixes if any(address in p for address in owner.publics)]
        for network in world.networks:
            if network is not owner:
                for prefix in holding:
                    build.route(network.name, str(prefix), owner.name)


def _by_bgp(world: World) -> bool:
    return world.spec.mode == "bgp"


def _impairment(uplink: UplinkSpec) -> Impairment:
    return Impairment(delay_us=uplink.delay, loss=uplink.loss, rate_bps=uplink.rate)
