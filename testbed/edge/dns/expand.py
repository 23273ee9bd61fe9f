"""The name servers of an edge in the plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.edge.dns import authority, resolver
from testbed.edge.dns.authority import View
from testbed.edge.plan import names
from testbed.edge.plan.world import World
from testbed.model.quantities import SECOND
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import File


def add(world: World, build: PlanBuilder, views: Sequence[View] = ()) -> None:
    """knot at the campus, at an address in the campus' prefix, and dnsmasq in every network's resolver."""
    build.loopback(names.NAME_SERVER, f"{world.name_server}/32")
    build.route(names.CAMPUS, f"{world.name_server}/32", names.NAME_SERVER)
    for node, files in configurations(world, views, client_subnet=world.spec.dns.client_subnet).items():
        for file in files:
            build.file(node, file.path, file.text)
        build.service(node, authority.SERVICE if node == names.NAME_SERVER else resolver.SERVICE)


def configurations(world: World, views: Sequence[View], *, client_subnet: bool) -> dict[str, list[File]]:
    """The files of the authority and of every resolver, by node."""
    hosts = {site.host: site.address for site in world.sites}
    server, ttl = world.name_server, world.spec.dns.ttl // SECOND
    found = {names.NAME_SERVER: authority.files(names.NAME_SERVER, server, hosts, views, ttl=ttl, ecs=client_subnet)}
    zones = list(authority.zones_of(hosts))
    for network in world.networks:
        text = resolver.configuration(network.resolver_own.ip, zones, server, ecs=client_subnet)
        found[network.resolver] = [File(path="resolver.conf", text=text)]
    return found
