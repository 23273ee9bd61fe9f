"""The published design: two routers hand users of the providers over to a redirector, which names the near address.

Step one is at the education network's border router, by destination and not from inside that network; step two at the
inner router, by source, to one address of the redirector for each provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.edge import redirector, rulesets
from testbed.edge.dns.ask import resolve
from testbed.edge.filters import requests
from testbed.edge.plan import names
from testbed.edge.plan.world import MARK, Network, PublicAddress, Site, World
from testbed.plan.builder import PlanBuilder

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.progress import Progress

__all__ = ["expand", "resolve", "start"]

MARK_PRIORITY = 100
DIRECT_PRIORITY = 50
FIRST_PRIORITY = 1000
"""Of the rules by source; one a prefix."""


def expand(world: World, build: PlanBuilder) -> None:
    """Marks, rules and tables of the routers, the redirector, and address translation at the providers' borders."""
    education = world.education
    build.nft(education.border, rulesets.education_border(world))
    build.rule(education.border, priority=MARK_PRIORITY, fwmark=MARK, table=MARK)
    build.route(education.border, "default", names.INNER, table=MARK)
    build.nft(names.CAMPUS, rulesets.campus_router(world))
    for isp in world.isps:
        build.nft(isp.border, rulesets.provider_border(published(world, isp)))
        build.rule(names.CAMPUS, priority=isp.table, fwmark=isp.number, table=isp.table)
        build.route(names.CAMPUS, "default", isp.border, table=isp.table)
    _redirector(world, build)
    if world.spec.redirect.variant == "pbr":
        _by_routes(world, build)
    else:
        _by_translation(world, build)
    _probe_routes(world, build)


def published(world: World, isp: Network) -> dict[PublicAddress, Site]:
    """Which site is behind each public address and port of a provider."""
    return {site.public[isp.name]: site for site in world.sites if isp.name in site.public}


def _redirector(world: World, build: PlanBuilder) -> None:
    path = ("edge", "redirect")
    services = [redirector.service_of(isp.name) for isp in world.isps]
    build.node(names.REDIRECTOR, path, runtime="process", subsystem="edge", role="redirector", services=services)
    build.sysctl(names.REDIRECTOR, *redirector.UNPRIVILEGED_PORTS)
    build.sysctl(names.REDIRECTOR, "net/core/somaxconn", "4096")
    for isp in world.isps:
        for path_, text in redirector.files(world, isp, requests.of_redirector(world.spec.filter)).items():
            build.file(names.REDIRECTOR, path_, text)


def _by_translation(world: World, build: PlanBuilder) -> None:
    """Variant ``dnat``: one link, every listener's address on ``lo``."""
    build.link(f"{names.INNER}:redirector", f"{names.REDIRECTOR}:inner", ("edge", "redirect"))
    build.nft(names.INNER, rulesets.inner_router(world))
    for isp in world.isps:
        build.loopback(names.REDIRECTOR, f"{isp.listener.ip}/32")
        build.route(names.INNER, f"{isp.listener.ip}/32", names.REDIRECTOR)


def _by_routes(world: World, build: PlanBuilder) -> None:
    """Variant ``pbr``: one link, one table and one rule a prefix for each provider; destinations stay as they are."""
    build.nft(names.INNER, rulesets.inner_router_by_routes())
    build.nft(names.REDIRECTOR, rulesets.redirector_by_routes(world))
    build.rule(names.INNER, priority=DIRECT_PRIORITY, fwmark=rulesets.DIRECT, table=254)
    priority = FIRST_PRIORITY
    for isp in world.isps:
        end = f"{names.REDIRECTOR}:{isp.name}"
        ends = (str(isp.inner_end), str(isp.listener))
        build.link(f"{names.INNER}:{isp.name}", end, ("edge", "redirect"), addresses=ends)
        build.route(names.INNER, "default", end, table=isp.table)
        for prefix in isp.prefixes:
            build.rule(
                names.INNER, priority=priority, source=str(prefix), iif_from=world.education.border, table=isp.table
            )
            priority += 1


def _probe_routes(world: World, build: PlanBuilder) -> None:
    """The ways by which the watch asks each provider's router whether it is there: out by that provider's border."""
    for isp in world.isps:
        target = f"{isp.uplink_router.ip}/32"
        build.route(names.INNER, target, world.education.border)
        build.route(world.education.border, target, names.CAMPUS)
        build.route(names.CAMPUS, target, isp.border)


def start(edge: Edge, progress: Progress) -> None:
    """Wait until the redirector answers, and start the watch over links and redirector."""
    edge.await_redirector(progress)
    if edge.world.spec.redirect.health is not None:
        edge.start_watch(progress)
