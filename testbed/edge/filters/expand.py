"""The filters of an edge in the plan: at every border router by which users come to the sites. Pure."""

from __future__ import annotations

from testbed.edge.filters import packets
from testbed.edge.filters.packets import Service
from testbed.edge.modes import smart_dns
from testbed.edge.plan import names
from testbed.edge.plan.world import Network, World
from testbed.plan.builder import PlanBuilder


def add(world: World, build: PlanBuilder) -> None:
    """A table of its own in each border router, if the topology wants filters."""
    spec = world.spec.filter
    if spec is None:
        return
    for network in world.networks:
        services = services_of(world, network)
        if not services:
            continue
        build.nft(network.border, packets.ruleset(names.UPLINK, services, spec))
        if spec.syn_proxy and any(services.values()):
            for key, value in packets.SYN_PROXY_SYSCTLS.items():
                build.sysctl(network.border, key, value)


def services_of(world: World, network: Network) -> dict[Service, Service | None]:
    """What users reach by the border router at a network, and where that is translated to."""
    mode = world.spec.mode
    if network.educational or mode == "bgp":
        return {(site.address, site.port): None for site in world.sites}
    if mode == "redirect":
        return {s.public[network.name]: (s.address, s.port) for s in world.sites if network.name in s.public}
    if mode == "smart-dns":
        published = smart_dns.published(world, network)
        return {public: (site.address, site.port) for public, site in published.items()}
    return {}
