"""Expansion of ``edge`` into nodes, links and routes. Pure; what runs is imported when a lab starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from testbed.edge import expand as base
from testbed.edge.check import world_of
from testbed.edge.dns import expand as dns
from testbed.edge.filters import expand as filters
from testbed.edge.modes import mode_of, views_of
from testbed.edge.spec import EdgeSpec
from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.progress import Progress
from testbed.subsystem import ProgramNeed

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class EdgeSubsystem:
    """A campus with several providers."""

    name = "edge"
    after: tuple[str, ...] = ()
    programs = (
        ProgramNeed("nginx", "nginx-light"),
        ProgramNeed("nft", "nftables"),
        ProgramNeed("knotd", "knot knot-module-geoip", least="3.2"),
        ProgramNeed("dnsmasq", "dnsmasq-base"),
        ProgramNeed("bird", "bird2"),
    )
    spec = EdgeSpec

    def check(self, spec: EdgeSpec, topology: Topology) -> Iterable[Problem]:
        """Whether prefixes, addresses and names fit together."""
        yield from world_of(spec)[1]

    def expand(self, spec: EdgeSpec, topology: Topology, build: PlanBuilder) -> None:
        """The campus and what its mode adds."""
        world = world_of(spec)[0]
        if world is None:
            base.stand_in(spec, build)
            return
        mode = mode_of(spec.mode)
        base.expand(world, build)
        mode.expand(world, build)
        dns.add(world, build, views_of(mode, world))
        filters.add(world, build)
        build.section("edge", spec.model_dump(mode="json"))

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Make the sites' content, await the servers, and start what the mode needs."""
        from testbed.edge.network import Edge

        return Edge.start(lab, progress)

    def attach(self, lab: Lab) -> Any:
        """The edge of a lab that is up already."""
        from testbed.edge.network import Edge

        return Edge(lab)


edge = EdgeSubsystem()
