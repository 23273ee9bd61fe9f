"""Views by the asking resolver's network: each provider's users are told the public address in that network.

An answer has no port, so that of several sites behind one public address and port of their own only the first can be
told; users are told the others' own addresses, in the education network.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from testbed.edge import rulesets
from testbed.edge.dns.ask import resolve
from testbed.edge.dns.authority import View
from testbed.edge.plan import names
from testbed.edge.plan.world import Network, PublicAddress, Site, World
from testbed.plan.builder import PlanBuilder

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.progress import Progress

__all__ = ["expand", "published", "resolve", "start", "unserved", "views"]


def published(world: World, isp: Network) -> dict[PublicAddress, Site]:
    """Which site is behind each public address and port of a provider; the port is the site's own."""
    found: dict[PublicAddress, Site] = {}
    for site in world.sites:
        if isp.name in site.public:
            found.setdefault((site.public[isp.name][0], site.port), site)
    return found


def unserved(world: World, isp: Network) -> list[Site]:
    """Sites that users of a provider cannot be brought near to: another site has their address and port."""
    served = {site.host for site in published(world, isp).values()}
    return [site for site in world.sites if isp.name in site.public and site.host not in served]


def views(world: World) -> list[View]:
    """What each network's resolvers are told. Of the education network too, or its answers would hold for everybody."""
    own: Mapping[str, IPv4Address] = {site.host: site.address for site in world.sites}
    found = [View(world.education.prefixes, own)]
    for isp in world.isps:
        near = {site.host: address for (address, _), site in published(world, isp).items()}
        found.append(View(isp.prefixes, {**own, **near}))
    return found


def expand(world: World, build: PlanBuilder) -> None:
    """Address translation at the providers' borders, and replies by the border that their request came in by."""
    build.nft(names.CAMPUS, rulesets.campus_router(world))
    for isp in world.isps:
        build.nft(isp.border, rulesets.provider_border(published(world, isp)))
        build.rule(names.CAMPUS, priority=isp.table, fwmark=isp.number, table=isp.table)
        build.route(names.CAMPUS, "default", isp.border, table=isp.table)


def start(edge: Edge, progress: Progress) -> None:
    """The name servers are those of every mode."""
