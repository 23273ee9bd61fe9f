"""Mirrors: a copy of every site in each provider's network, found by DNS like the addresses of ``smart-dns``.

A mirror tells sites apart by their names, so that one address is enough for all of them.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from testbed.edge import webserver
from testbed.edge.dns.ask import resolve
from testbed.edge.dns.authority import View
from testbed.edge.plan import names
from testbed.edge.plan.world import Network, World
from testbed.edge.redirector import UNPRIVILEGED_PORTS
from testbed.plan.builder import PlanBuilder

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.progress import Progress

__all__ = ["address", "expand", "resolve", "start", "views"]


def address(isp: Network) -> IPv4Address:
    """A mirror has the first of the public addresses that the campus has in the provider's network."""
    return isp.publics[0]


def views(world: World) -> list[View]:
    """Resolvers of a provider are told its mirror."""
    own = {site.host: site.address for site in world.sites}
    near = [View(isp.prefixes, dict.fromkeys(own, address(isp))) for isp in world.isps]
    return [View(world.education.prefixes, own), *near]


def expand(world: World, build: PlanBuilder) -> None:
    """One mirror at each provider's router."""
    for isp in world.isps:
        mirror, path = names.mirror(isp.name), ("edge", "isps", isp.name)
        build.node(mirror, path, runtime="process", subsystem="edge", role="mirror", services=(webserver.SERVICE,))
        build.sysctl(mirror, *UNPRIVILEGED_PORTS)
        build.file(mirror, "nginx.conf", webserver.mirror_configuration(world, mirror))
        build.link(f"{mirror}:eth0", isp.name, path)
        build.loopback(mirror, f"{address(isp)}/32")
        build.route(isp.name, f"{address(isp)}/32", mirror)


def start(edge: Edge, progress: Progress) -> None:
    """Make the mirrors' copies and wait until they serve."""
    for isp in edge.world.isps:
        webserver.write_content(edge.lab.node_folder(names.mirror(isp.name)), edge.world)
