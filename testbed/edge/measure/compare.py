"""What the scenarios that compare modes do: a lab a mode from one topology, and a user's visit told to the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from testbed.edge.measure.fetch import Fetch
from testbed.edge.network import Edge
from testbed.edge.plan.world import Client
from testbed.edge.spec import EdgeSpec, Mode
from testbed.errors import TestbedError
from testbed.lab.up import up
from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.measure.measure import Measure

EXPERIMENT = "edge-compare"
MODES: tuple[str, ...] = get_args(Mode)


def changed_plan(topology: Topology, change: Callable[[EdgeSpec], EdgeSpec], what: str) -> Plan:
    """The plan of a topology with another edge. TestbedError, said of ``what``, if it has none or it cannot be."""
    spec = topology.sections.get("edge")
    if not isinstance(spec, EdgeSpec):
        raise TestbedError(f"topology {topology.name!r} has no edge", remedy="it needs a section `edge`")
    plan, problems = expand(topology.model_copy(update={"sections": {**topology.sections, "edge": change(spec)}}))
    if problems:
        raise TestbedError(f"{what}: {problems[0].message}", remedy=problems[0].remedy)
    return plan


def plan_in_mode(topology: Topology, mode: str) -> Plan:
    """The plan of a topology with its edge in another mode. TestbedError if there is no such mode, or it cannot be."""
    if mode not in MODES:
        raise TestbedError(f"the edge has no mode {mode!r}", remedy=f"write one of {', '.join(MODES)}")
    return changed_plan(topology, lambda spec: spec.model_copy(update={"mode": mode}), f"mode {mode!r}")


@contextmanager
def compared_lab(measure: Measure, planned: tuple[Topology, Plan, Path], mode: str) -> Iterator[Edge]:
    """A lab of the scenario's topology in ``mode`` as long as the block lasts; its events go to the run."""
    topology, _, path = planned
    plan = plan_in_mode(topology, mode)
    with edge_lab(measure, plan, f"{plan.name}-{mode}", path) as edge:
        yield edge


@contextmanager
def edge_lab(measure: Measure, plan: Plan, name: str, path: Path) -> Iterator[Edge]:
    """A lab of this plan, made from the topology at ``path``, as long as the block lasts; its events go to the run."""
    me = os.getpid()
    lab = up(plan, f"{name}-{me}", progress=measure.progress, owner=me, topology=str(path.resolve()))
    try:
        measure.run.update(impairment=lab.record.impair or "none")
        lab.listeners.append(measure.run.listener)
        edge: Edge = lab.subsystem("edge")
        yield edge
    finally:
        lab.down()


def visit(edge: Edge, measure: Measure, client: Client, host: str, path: str, *, timeout: float) -> Fetch:
    """Have a user fetch a path while nobody else does, and record it as event ``edge-compare`` with the ways that its
    requests took."""
    traced = edge.traced(client.node, host, path, timeout=timeout)
    fetch = traced.fetch
    last = fetch.hops[-1]
    measure.event(
        EXPERIMENT,
        client.node,
        network=client.network,
        path=path,
        outcome=fetch.outcome,
        connect=last.connect,
        first_byte=last.first_byte,
        transfer=fetch.transfer,
        redirect=sum(hop.total or 0.0 for hop in fetch.hops[:-1]),
        total=fetch.total,
        place=fetch.place,
        bytes=fetch.bytes,
        exchange=traced.exchange_bytes,
        ways=traced.ways,
    )
    return fetch
