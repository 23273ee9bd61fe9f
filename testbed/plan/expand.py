"""Topology to plan. Pure: no root, no kernel, no clock, no randomness but the topology's own seed."""

from __future__ import annotations

from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.impairments import impairment_of, jitter_place
from testbed.plan.references import resolved
from testbed.plan.types import Plan, Service
from testbed.subsystem import subsystems


def expand(topology: Topology) -> tuple[Plan, list[Problem]]:
    """The plan of ``topology`` and all that is wrong with it. Use the plan only if there are no problems."""
    build = PlanBuilder(topology.name, topology.seed, topology.description, topology.defaults)
    _add_plain_nodes(topology, build)
    for name, subsystem in subsystems().items():
        spec = topology.sections.get(name)
        if spec is not None:
            build.problems.extend(subsystem.check(spec, topology))
            subsystem.expand(spec, topology, build)
    _add_plain_links(topology, build)
    plan = build.build()
    if not build.problems:  # else nodes or addresses may be missing that are meant to be there
        plan = resolved(plan, build.problems.append)
    for name, subsystem in subsystems().items():
        if name in topology.sections and (check := getattr(subsystem, "check_plan", None)) is not None:
            build.problems.extend(check(topology.sections[name], plan))
    return plan, list(dict.fromkeys(build.problems))


def _add_plain_nodes(topology: Topology, build: PlanBuilder) -> None:
    for name, spec in topology.nodes.items():
        path = ("nodes", name)
        if spec is None:
            build.node(name, path)
            continue
        services = [
            Service(name=key, argv=service.command, env=service.env, root=service.root)
            for key, service in spec.services.items()
        ]
        build.node(
            name,
            path,
            kind=spec.kind,
            runtime=spec.runtime,
            image=spec.image,
            memory_bytes=spec.memory,
            pids=spec.pids,
            subnet=spec.subnet,
            services=services,
            routes=[(route.to, route.via, (*path, "routes", index)) for index, route in enumerate(spec.routes)],
        )
        for file, text in spec.files.items():
            build.file(name, file, text)


def _add_plain_links(topology: Topology, build: PlanBuilder) -> None:
    for index, link in enumerate(topology.links):
        build.link(
            *link.endpoints,
            ("links", index),
            forward=impairment_of(topology.defaults.link, link, link.forward),
            backward=impairment_of(topology.defaults.link, link, link.backward),
            mtu=link.mtu if "mtu" in link.model_fields_set else topology.defaults.link.mtu,
            addresses=link.addresses,
            impaired_at=jitter_place(link, ("links", index)),
        )
