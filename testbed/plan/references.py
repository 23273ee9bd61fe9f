"""``${address:NODE}`` in the commands, environments and files of plain nodes: the address that NODE has in the plan.

So a topology need not fix addresses for a program to be told of another. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from testbed.errors import Path, Problem, nearest
from testbed.plan.types import Node, Plan

_REFERENCE = re.compile(r"\$\{address:([^}]*)\}")
Resolve = Callable[[str, Path], str]


def resolved(plan: Plan, report: Callable[[Problem], None]) -> Plan:
    """The plan with addresses in their places; what names no node or no address of it is reported.

    ``${address:web}`` is the first address of ``web``, ``${address:web:eth1}`` that of one of its interfaces.
    """

    def resolve(text: str, path: Path) -> str:
        def address(match: re.Match[str]) -> str:
            name, _, interface = match[1].partition(":")
            try:
                return str(plan.address(name, interface))
            except KeyError:
                report(Problem(path, f"{match[0]} is no address of the lab", _remedy(plan, name), assumes="nodes"))
                return match[0]

        return _REFERENCE.sub(address, text)

    nodes = tuple(node if node.subsystem else _resolved(node, resolve) for node in plan.nodes)
    return plan if nodes == plan.nodes else plan.model_copy(update={"nodes": nodes})


def _resolved(node: Node, resolve: Resolve) -> Node:
    path = ("nodes", node.name)
    services = []
    for service in node.services:
        at = (*path, "services", service.name)
        argv = tuple(resolve(word, (*at, "command", place)) for place, word in enumerate(service.argv))
        env = {key: resolve(value, (*at, "env", key)) for key, value in service.env.items()}
        services.append(service.model_copy(update={"argv": argv, "env": env}))
    files = [file.model_copy(update={"text": resolve(file.text, (*path, "files", file.path))}) for file in node.files]
    return node.model_copy(update={"services": tuple(services), "files": tuple(files)})


def _remedy(plan: Plan, name: str) -> str:
    known = [node.name for node in plan.nodes]
    usage = "write it as in `${address:web}` or `${address:web:eth1}`, of a node that has an address"
    return usage if name in known else nearest(name, known, usage)
