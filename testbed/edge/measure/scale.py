"""A campus grown to many sites and prefixes: how large configurations get, and how long a change takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.edge import control, redirector, rulesets
from testbed.edge.dns import authority
from testbed.edge.measure.compare import changed_plan, edge_lab
from testbed.edge.modes import redirect as redirection
from testbed.edge.modes import smart_dns
from testbed.edge.network import Edge
from testbed.edge.plan.world import World
from testbed.edge.spec import EdgeSpec, SiteSpec
from testbed.errors import WaitTimeout
from testbed.model.topology import Topology
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.measure.measure import Measure

FIRST_BLOCK = 20
"""First octet of the further prefixes of the first provider; the others follow, two apart."""
PREFIX_BITS = 20


def grown(spec: EdgeSpec, sites: int, prefixes: int) -> EdgeSpec:
    """The same edge with ``sites`` sites and about ``prefixes`` prefixes of all providers together.

    Nobody watches over it: to a watch a redirector under full load looks dead, and would be started anew.
    """
    each = prefixes // len(spec.isps)
    isps = {}
    for number, (name, isp) in enumerate(spec.isps.items()):
        block, size = int(IPv4Address(f"{FIRST_BLOCK + 2 * number}.0.0.0")), 2 ** (32 - PREFIX_BITS)
        more = [f"{IPv4Address(block + size * index)}/{PREFIX_BITS}" for index in range(each - len(isp.prefixes))]
        isps[name] = isp.model_copy(update={"prefixes": (*isp.prefixes, *more)})
    names = {f"s{number}.campus.test": SiteSpec() for number in range(1, sites + 1)}
    redirect = spec.redirect.model_copy(update={"health": None})
    return spec.model_copy(update={"isps": isps, "sites": names, "redirect": redirect})


def sizes(world: World) -> dict[str, int]:
    """Bytes of each configuration that grows with sites or prefixes, by what it is."""
    isp = world.isps[0]
    hosts = [site.host for site in world.sites]
    views = smart_dns.views(world)
    one = len(authority.views_text(hosts[:1], views))
    return {
        "redirector, table of one provider": len(redirector.places(world.sites, isp.name)),
        "inner router": len(rulesets.inner_router(world)),
        "education network's border router": len(rulesets.education_border(world)),
        "one provider's border router": len(rulesets.provider_border(redirection.published(world, isp))),
        # each name has its own list of all prefixes; a whole one would be made for nothing else
        "smart DNS, views (estimated from one site)": one * len(hosts),
    }


def grown_plan(topology: Topology, sites: int, prefixes: int) -> Plan:
    """The plan of a topology grown so far. TestbedError if it has no edge, or it cannot be grown."""
    change = partial(grown, sites=sites, prefixes=prefixes)
    return changed_plan(topology, change, f"{sites} sites, {prefixes} prefixes")


@contextmanager
def grown_lab(measure: Measure, topology: Topology, path: Path, sites: int, prefixes: int) -> Iterator[Edge]:
    """A lab of a topology grown so far, as long as the block lasts; how long it took goes to the run."""
    began = time.monotonic()
    plan = grown_plan(topology, sites, prefixes)
    expanded = time.monotonic()
    with edge_lab(measure, plan, plan.name, path) as edge:
        measure.event("edge-grown", plan_seconds=expanded - began, up_seconds=time.monotonic() - expanded)
        yield edge


def change_time(edge: Edge, way: str, timeout: float = 20.0) -> float:
    """Seconds from the decision to send the first provider's users another way until they are sent there."""
    isp, site = edge.world.isps[0], edge.world.sites[-1]
    wanted = redirector.place(site, way, site.public[way])
    began = time.monotonic()
    control.send_to(edge.lab, edge.world, isp.name, way)
    while True:
        said = control.location(edge.lab, isp.listener.ip, site, site.port)
        if said.startswith(wanted):
            return time.monotonic() - began
        if time.monotonic() - began > timeout:
            raise WaitTimeout(f"users of {isp.name} to be sent to {wanted}", timeout, said)
