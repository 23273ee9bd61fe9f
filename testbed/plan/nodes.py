"""What a node of its kind and runtime can have."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.errors import Problem, halves
from testbed.model.words import RESERVED_NAMES, check_name
from testbed.plan.draft import NodeDraft

CORE = "core"
"""The router that subsystems hang on unless they are attached elsewhere."""

LEAST_MEMORY = 6 * 2**20
"""Smallest memory limit that the Docker engine takes, bytes."""


def node_problems(draft: NodeDraft) -> Iterator[Problem]:
    """What is wrong with a node as it was asked for, taken by itself."""
    node, path = draft.node, draft.path
    try:
        check_name(node.name)
    except ValueError as error:
        yield Problem(path, *halves(error))
    if node.name in RESERVED_NAMES:
        yield Problem(path, f"{node.name!r} is a reserved name", "choose another name", at_key=True)
    if node.name == CORE and node.kind != "router":
        yield Problem((*path, "kind"), f"{CORE!r} must be a router", "write `kind: router`, or rename the node")
    if node.kind != "switch" and draft.subnet is not None:
        yield Problem((*path, "subnet"), f"{node.name!r} is a {node.kind}; only a switch has a subnet", "remove it")
    if node.kind == "switch" and draft.routes:
        yield Problem((*path, "routes"), f"{node.name!r} is a switch, which has no routes", "remove them")
    if node.kind != "host" and node.runtime != "process":
        yield Problem((*path, "runtime"), f"{node.name!r} is a {node.kind}; only hosts can be containers", "remove it")
    elif node.runtime != "container":
        for key, value in (("image", node.image), ("memory", node.memory_bytes), ("pids", node.pids)):
            if value is not None:
                message = f"{node.name!r} is no container, so that `{key}` has no effect"
                yield Problem((*path, key), message, "add `runtime: container`, or remove it")
    else:
        for service in node.services:
            if service.root:
                message = f"{service.name!r} cannot be root: {node.name!r} is a container, which has no rights to give"
                remedy = "leave out `root`, or make the node a plain process"
                yield Problem((*path, "services", service.name, "root"), message, remedy)
    if node.memory_bytes is not None and node.memory_bytes < LEAST_MEMORY:
        yield Problem((*path, "memory"), "`memory` is less than the engine takes", "write at least 6MiB")
