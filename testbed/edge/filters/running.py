"""The filters of a running edge: its ban agents, and all of it switched off and on."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from testbed.edge import redirector, webserver
from testbed.edge.filters import agent, expand, packets, requests
from testbed.edge.plan import names
from testbed.errors import TestbedError, WaitTimeout
from testbed.net import ruleset
from testbed.runtime.base import UNPRIVILEGED_ID

if TYPE_CHECKING:
    from testbed.edge.network import Edge

LIMIT = 15.0


def watched(edge: Edge) -> list[str]:
    """The nodes whose nginx has its log heard."""
    servers = list(edge.world.servers)
    return [names.REDIRECTOR, *servers] if edge.spec.mode == "redirect" else servers


def start(edge: Edge) -> None:
    """Start an agent beside each watched nginx, if the topology wants bans, and wait until all listen."""
    spec = edge.spec.filter
    if spec is None or not spec.ban.after:
        return
    borders = [edge.lab.namespace(network.border) for network in edge.world.networks]
    for node in watched(edge):
        edge.lab.spawn(node, agent.service(edge.lab.node_folder(node), borders, spec, requests.SOCKET))
    deadline = time.monotonic() + LIMIT
    for node in watched(edge):
        while not (edge.lab.node_folder(node) / requests.SOCKET).exists():
            if time.monotonic() > deadline:
                log = edge.lab.node_folder(node) / "ban-agent.log"
                raise WaitTimeout("the ban agent to listen", LIMIT, log.read_text()[-500:], where=f"node {node}")
            time.sleep(0.01)


def bans(edge: Edge) -> list[dict[str, Any]]:
    """Every ban so far: monotonic time, source, and what went wrong at which border router."""
    found = []
    for node in watched(edge):
        path = edge.lab.node_folder(node) / "bans.jsonl"
        if path.exists():
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(found, key=lambda ban: float(ban["t"]))


def switch(edge: Edge, on: bool) -> None:
    """Have packets pass by the filters of border routers and servers, or not any more; nobody is banned afterwards.

    Servers read their configuration again and go on with the connections that they have. TestbedError where the
    topology has no filter.
    """
    spec = edge.spec.filter
    if spec is None:
        raise TestbedError("the edge has no filter", remedy="add `filter: {}` to the topology's `edge`")
    for network in edge.world.networks:
        services = expand.services_of(edge.world, network)
        if services:
            text = packets.ruleset(names.UPLINK, services, spec)
            ways_around = "" if on else packets.ways_around(text)
            fresh = f"table ip {packets.TABLE}\ndelete table ip {packets.TABLE}\n"
            ruleset.run(edge.lab.namespace(network.border), fresh + text + ways_around, f"node {network.border}")
    server_lines = requests.of_server(spec if on else None)
    for server in edge.world.servers:
        _rewrite(edge, server, "nginx.conf", webserver.configuration(edge.world, server, server_lines))
    if edge.spec.mode == "redirect":
        lines = requests.of_redirector(spec if on else None)
        for isp in edge.world.isps:
            path = f"{isp.name}.conf"
            _rewrite(edge, names.REDIRECTOR, path, redirector.files(edge.world, isp, lines)[path])
    for node in (*edge.world.servers, *([names.REDIRECTOR] if edge.spec.mode == "redirect" else [])):
        for name, (process, _) in edge.lab.services(node).items():
            if name.startswith("nginx"):
                process.signal(signal.SIGHUP)
    edge.lab.event("edge-filter", on=on)


def _rewrite(edge: Edge, node: str, name: str, text: str) -> None:
    folder = edge.lab.node_folder(node)
    (folder / name).write_text(text.replace("${dir}", str(folder)))
    os.chown(folder / name, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
