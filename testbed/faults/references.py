"""Whether the nodes, links and programs that a fault names are in the plan. By the names of its settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.errors import Path, Problem, TestbedError, nearest
from testbed.faults.fields import is_node
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.faults.base import Fault


def named_nodes(fault: Fault) -> Iterator[tuple[Path, str]]:
    """Every node that the settings name, with its place in them; endpoints of links without their interface."""
    if name := getattr(fault, "node", None):
        yield ("node",), name
    for index, name in enumerate(getattr(fault, "nodes", None) or ()):
        yield ("nodes", index), name
    for number, group in enumerate(getattr(fault, "groups", None) or ()):
        for index, name in enumerate(group):
            yield ("groups", number, index), name
    if (target := getattr(fault, "target", None)) and is_node(target):
        yield ("target",), target
    for index, endpoint in enumerate(getattr(fault, "link", None) or ()):
        yield ("link", index), endpoint.partition(":")[0]


def dangling(fault: Fault, plan: Plan) -> Iterator[Problem]:
    """A problem for everything that is named and does not exist."""
    names = [node.name for node in plan.nodes]
    unknown = [(path, name) for path, name in named_nodes(fault) if name not in names]
    for path, name in unknown:
        yield Problem(path, f"there is no node {name!r}", nearest(name, names, f"nodes: {', '.join(names[:20])}"))
    if unknown:
        return
    if getattr(fault, "link", None):
        yield from _link(fault, plan)
    if getattr(fault, "service", None):
        yield from _service(fault, plan)


def dangling_or_switches(fault: Fault, plan: Plan) -> Iterator[Problem]:
    """As ``dangling``, and a problem for every switch: packets cross one without coming to its filters."""
    yield from dangling(fault, plan)
    kinds = {node.name: node.kind for node in plan.nodes}
    for path, name in named_nodes(fault):
        if kinds.get(name) == "switch":
            yield Problem(path, f"{name!r} is a switch, which has no address", "name the nodes behind it")


def _link(fault: Fault, plan: Plan) -> Iterator[Problem]:
    from testbed.lab.links import find_in

    try:
        find_in(plan, *fault.link)  # type: ignore[attr-defined]
    except TestbedError as error:
        yield Problem(("link",), error.what, error.remedy)


def _service(fault: Fault, plan: Plan) -> Iterator[Problem]:
    """Only of plain nodes: what a subsystem starts is known when it has."""
    node = plan.node(fault.node)  # type: ignore[attr-defined]
    names = [service.name for service in node.services]
    wanted: str = fault.service  # type: ignore[attr-defined]
    if not node.subsystem and wanted not in names:
        yield Problem(
            ("service",),
            f"node {node.name!r} runs no program {wanted!r}",
            f"its programs: {', '.join(names) or 'none'}",
        )
