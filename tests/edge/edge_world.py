"""Labs of the edge tests: the campus of the documentation with other keys, and raw requests to its redirector."""

from __future__ import annotations

import copy
import socket
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from testbed.edge.network import Edge
from testbed.edge.plan import names
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.net.namespace import inside
from testbed.plan.load import load_text

ROOT = Path(__file__).parents[2]
CAMPUS: dict[str, Any] = yaml.safe_load((ROOT / "topologies" / "campus.yaml").read_text())


def campus(name: str, **keys: Any) -> Lab:
    """The documentation's campus with some keys of its section replaced, up."""
    topology = copy.deepcopy(CAMPUS)
    topology["edge"].update(keys)
    _, plan = load_text(yaml.safe_dump(topology, sort_keys=False))
    return up(plan, name)


def edge_of(lab: Lab) -> Edge:
    edge = lab.subsystem("edge")
    assert isinstance(edge, Edge)
    return edge


def ask(lab: Lab, data: bytes, address: IPv4Address, port: int = 80, *, timeout: float = 10) -> bytes:
    """All that the redirector answers to ``data``, sent by the inner router to a listener."""

    def talk() -> bytes:
        with socket.create_connection((str(address), port), timeout=timeout) as opened:
            try:
                opened.sendall(data)
                opened.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has hung up already; what it said is there to be read
            answer = b""
            try:
                while part := opened.recv(65536):
                    answer += part
            except ConnectionResetError:
                pass
            return answer

    return inside(lab.namespace(names.INNER), talk)
