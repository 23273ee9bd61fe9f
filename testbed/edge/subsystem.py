"""Expansion of ``edge`` into nodes, links and routes. Pure; what runs is imported when a lab starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from testbed.edge.dns import expand as dns
from testbed.edge.filters import expand as filters
from testbed.edge.modes import mode_of, views_of
from testbed.edge.plan import expand as base
from testbed.edge.plan.check import world_of
from testbed.edge.spec import EdgeSpec
from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
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

    def check_plan(self, spec: EdgeSpec, plan: Plan) -> Iterable[Problem]:
        """In mode ``bgp`` nobody else hangs on the edge: nobody would announce his address."""
        if spec.mode != "bgp":
            return
        own = {node.name for node in plan.nodes if node.subsystem == self.name}
        ends = [(link.a.node, link.b.node) for link in plan.links]
        strangers = {name for pair in ends if own & {*pair} for name in {*pair} - own}
        if strangers:
            found = sorted(strangers)
            shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
            yield Problem(
                ("edge", "mode"),
                f"nodes from outside the edge are attached to its routers; mode bgp announces none of them: {shown}",
                "write another mode, or give them a router of their own",
            )

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
