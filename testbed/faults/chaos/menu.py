"""What faults a lab can be given, by its plan: for each kind, settings drawn by chance. Pure.

A new kind needs no entry here if all that it must be told is a node, nodes, groups, a link or a program.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testbed.errors import TestbedError
from testbed.faults.base import Fault, fault_class, known_faults
from testbed.plan.types import Node, Plan

Settings = dict[str, Any]
Maker = Callable[["Places", random.Random], Settings]

_HTTP = re.compile(r"http|nginx")
_PORT = re.compile(r"(?:.*[:=])?([1-9][0-9]{1,4})")


class _Unfit(Exception):
    """The plan has nothing that this fault could hit."""


@dataclass(frozen=True)
class Places:
    """What of a plan faults can hit."""

    running: list[str]
    """Nodes in which something runs."""
    containers: list[str]
    programs: list[tuple[str, str]]
    """Node and name of the programs that the topology itself names."""
    addressed: list[str]
    """Nodes with an address."""
    links: list[list[str]]
    """Both ends of each link, told apart from others between the same nodes."""
    servers: list[tuple[str, int]]
    """Node and port of what looks like an HTTP server by its command."""

    @classmethod
    def of(cls, plan: Plan) -> Places:
        """All of them, in the plan's order."""
        nodes = plan.nodes
        programs = [(node.name, service.name) for node in nodes for service in node.services]
        servers = [
            (node.name, port) for node in nodes for service in node.services if (port := _http_port(service.argv))
        ]
        return cls(
            running=[node.name for node in nodes if node.services or (node.subsystem and node.kind == "host")],
            containers=[node.name for node in nodes if node.runtime == "container"],
            programs=programs,
            addressed=[node.name for node in nodes if _has_address(plan, node)],
            links=[[f"{end.node}:{end.interface}" for end in (link.a, link.b)] for link in plan.links],
            servers=[server for server in servers if plan.links_of(server[0])],
        )


def _has_address(plan: Plan, node: Node) -> bool:
    return node.kind != "switch" and any(link.end(node.name).addresses for link in plan.links_of(node.name))


def _http_port(argv: Iterable[str]) -> int | None:
    words = list(argv)
    if not any(_HTTP.search(word) for word in words):
        return None
    found = [int(match[1]) for word in words if (match := _PORT.fullmatch(word))]
    return next((port for port in found if port <= 65535), None)


def menu(plan: Plan, chance: random.Random, kinds: Iterable[str] = (), each: int = 3) -> list[Settings]:
    """Faults to draw from, each with ``fault`` and its settings as a timeline has them: ``each`` of every kind.

    ``kinds``: only these; all that fit, otherwise. TestbedError if a wanted one does not exist or does not fit.
    """
    places = Places.of(plan)
    wanted = list(kinds)
    for kind in wanted:
        if fault_class(kind).combines:
            raise TestbedError(f"fault {kind} only wraps other faults", remedy="name the faults themselves")
    names = wanted or [kind for kind, fault in known_faults().items() if not fault.combines]
    found: list[Settings] = []
    for kind in names:
        try:
            found += [{"fault": kind, **_settings(fault_class(kind), places, chance)} for _ in range(each)]
        except _Unfit as error:
            if wanted:
                raise TestbedError(f"fault {kind} does not fit the topology: {error}") from None
    if not found:
        raise TestbedError("no fault fits the topology")
    return found


def _settings(fault: type[Fault], places: Places, chance: random.Random) -> Settings:
    if fault.kind in _MAKERS:
        return _MAKERS[fault.kind](places, chance)
    made: Settings = {}
    for name, field in fault.model_fields.items():
        if name in _BY_NAME:
            made |= _BY_NAME[name](places, chance)
        elif field.is_required():
            raise _Unfit(f"nothing is known to set `{name}` to")
    return made


def _one(places: list[Any], what: str, chance: random.Random) -> Any:
    if not places:
        raise _Unfit(f"it has no {what}")
    return chance.choice(places)


def _node(places: Places, chance: random.Random) -> Settings:
    return {"node": _one(places.running, "node with a program", chance)}


def _container(places: Places, chance: random.Random) -> Settings:
    return {"node": _one(places.containers, "container", chance)}


def _program(places: Places, chance: random.Random) -> Settings:
    node, service = _one(places.programs, "program of its own", chance)
    return {"node": node, "service": service}


def _node_or_program(places: Places, chance: random.Random) -> Settings:
    return _program(places, chance) if places.programs and chance.random() < 0.5 else _node(places, chance)


def _link(places: Places, chance: random.Random) -> Settings:
    ends: list[str] = list(_one(places.links, "link", chance))
    return {"link": ends if chance.random() < 0.5 else ends[::-1]}


def _nodes(places: Places, chance: random.Random) -> Settings:
    if not places.addressed:
        raise _Unfit("it has no node with an address")
    return {"nodes": chance.sample(places.addressed, min(len(places.addressed), chance.randint(1, 2)))}


def _groups(places: Places, chance: random.Random) -> Settings:
    if len(places.addressed) < 2:
        raise _Unfit("it has not two nodes with an address")
    nodes = chance.sample(places.addressed, chance.randint(2, len(places.addressed)))
    cut = chance.randint(1, len(nodes) - 1)
    return {"groups": [nodes[:cut], nodes[cut:]]}


def _blackhole(places: Places, chance: random.Random) -> Settings:
    nodes = _nodes(places, chance)["nodes"]
    others = [node for node in places.addressed if node not in nodes]
    return {"nodes": nodes, "target": _one(others, "other node with an address", chance)}


def _server(places: Places, chance: random.Random) -> Settings:
    node, port = _one(places.servers, "HTTP server that can be told by its command", chance)
    return {"node": node, "port": port}


def _flood(places: Places, chance: random.Random) -> Settings:
    server = _server(places, chance)
    others = [node for node in places.addressed if node != server["node"]]
    node = _one(others, "other node with an address", chance)
    bounds = {"count": chance.randint(10, 100), "rate": "50/s", "duration": "30s"}
    return {"nodes": [node], "target": server["node"], "port": server["port"], **bounds}


def _degrade(places: Places, chance: random.Random) -> Settings:
    how: list[Settings] = [
        {"delay": f"{chance.randint(1, 100)}ms"},
        {"delay": "20ms", "jitter": f"{chance.randint(1, 20)}ms"},
        {"loss": f"{chance.randint(1, 50)}%"},
        {"loss": "10%", "loss_burst": 3.0},
        {"rate": f"{chance.randint(1, 20)}mbit"},
        {"duplicate": "10%"},
        {"corrupt": "5%"},
    ]
    return {**_link(places, chance), **chance.choice(how), "direction": chance.choice(["both", "forward", "backward"])}


def _with(maker: Maker, **choices: list[Any]) -> Maker:
    """``maker`` with further settings, each one of the given."""

    def make(places: Places, chance: random.Random) -> Settings:
        return {**maker(places, chance), **{name: chance.choice(values) for name, values in choices.items()}}

    return make


_BY_NAME: dict[str, Maker] = {"node": _node, "service": _node_or_program, "link": _link, "nodes": _nodes}
_BY_NAME["groups"] = _groups
_MAKERS: dict[str, Maker] = {
    "blackhole": _blackhole,
    "clock-skew": _with(_node, skew=["+1h", "-90s", "+30ms", "-24h"]),
    "connection-flood": _flood,
    "cpu-throttle": _with(_node, share=["10%", "30%", "60%"]),
    "crash-loop": _with(_program, period=["600ms", "1s"], count=[2, 3], down=["0s", "100ms"]),
    "degrade": _degrade,
    "disk-full": _with(_container, path=["/tmp", "/run", "/var/tmp"]),  # noqa: S108
    "drop-port": lambda places, chance: {**_nodes(places, chance), "port": _server(places, chance)["port"]},
    "failing-upstream": _with(_server, status=[500, 503], share=["50%", "100%"]),
    "link-flap": _with(_link, period=["200ms", "500ms"], count=[2, 5]),
    # Far more than what a program of a small lab takes: one that is killed for memory would stay dead.
    "memory-limit": _with(_node, limit=["512MiB", "1GiB"]),
    "mtu-shrink": _with(_link, mtu=[1280, 1300, 1400]),
    "recreate": _container,
    # A program that is paused does not end by SIGTERM, and the schedule waits for it.
    "restart": _with(_node_or_program, within=["1s"], down=["0s", "200ms"]),
    "slow-requests": _flood,
    "slow-upstream": _with(_server, delay=["20ms", "200ms"]),
    "stop": _with(_node_or_program, within=["1s"]),
}
