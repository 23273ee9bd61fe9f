"""Putting a proxy before a TCP server of a node: new connections to it are redirected inside the node."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultError, Memory
from testbed.faults.tools import filters, helpers
from testbed.net import namespace

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

MARK = 0x7B001
"""Of the proxy's own connections, which are not redirected."""
_DRAIN = 3.0
"""Seconds; longer than the proxy waits for its last connections."""


def remember(lab: Lab, node: str, port: int) -> Memory:
    """A free port for the proxy. FaultError if nobody listens where it is to stand."""

    def look() -> int:
        try:
            socket.create_connection((_address(lab, node), port), timeout=5).close()
        except OSError as error:
            raise FaultError(f"node {node} does not listen on port {port}: {error.strerror or error}") from error
        with socket.create_server(("0.0.0.0", 0)) as free:  # noqa: S104 - in a node's own network
            return int(free.getsockname()[1])

    return {"listen": namespace.inside(lab.namespace(node), look)}


def insert(lab: Lab, node: str, port: int, memory: Memory, behaviour: dict[str, Any]) -> None:
    """Start the proxy, and redirect to it whoever opens a connection to the server, from outside or inside the node.

    Only first packets match: connections that are open already stay what they are.
    """
    listen = memory["listen"]
    job = {"port": listen, "mark": MARK, "seed": lab.plan.seed, "delay": 0, "status": 0, "share": 1, **behaviour}
    helpers.start(lab, memory, "proxy", job, node=node, outside=True)
    _await_listener(lab, node, memory)
    first = f"tcp flags & (syn | ack) == syn tcp dport {port} fib daddr type local"
    filters.add(
        lab,
        node,
        f"""table inet {filters.table(lab, memory)} {{
 chain prerouting {{
  type nat hook prerouting priority -100
  iifname != "lo" {first} redirect to :{listen}
 }}
 chain output {{
  type nat hook output priority -100
  {first} meta mark != {MARK} redirect to :{listen}
 }}
}}
""",
    )


def verify(lab: Lab, node: str, memory: Memory) -> None:
    """The rules are there, and the proxy runs."""
    filters.verify(lab, node, memory, 2)
    if not helpers.find(lab, memory):
        raise FaultError(f"the proxy of node {node} has ended: {helpers.last_words(lab, memory)}")


def request(lab: Lab, node: str, port: int, timeout: float) -> tuple[int, float]:
    """Ask the server from within its node: status of its answer, and seconds until its first byte."""

    def ask() -> tuple[int, float]:
        began = time.monotonic()
        address = _address(lab, node)
        with socket.create_connection((address, port), timeout=timeout) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            line = connection.recv(64)
        seconds = time.monotonic() - began
        words = line.split(b" ")
        if not line.startswith(b"HTTP/") or len(words) < 2 or not words[1].isdigit():
            raise FaultError(f"port {port} of node {node} gave no answer in HTTP: {line[:40]!r}")
        return int(words[1]), seconds

    try:
        return namespace.inside(lab.namespace(node), ask)
    except OSError as error:
        raise FaultError(f"port {port} of node {node} gave no answer: {error}") from error


def withdraw(lab: Lab, node: str, memory: Memory) -> None:
    """New connections go to the server again; those through the proxy may end for a moment, then it is ended."""
    table = f"inet {filters.table(lab, memory)}"
    filters.add(lab, node, f"add table {table}\nflush table {table}\n")  # its hooks go on to translate
    for pid in helpers.find(lab, memory):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _DRAIN
    while helpers.find(lab, memory) and time.monotonic() < deadline:
        time.sleep(0.01)
    helpers.end(lab, memory)
    filters.remove(lab, node, memory)


def verify_withdrawn(lab: Lab, node: str, memory: Memory) -> str:
    """Neither rules nor proxy are left."""
    filters.verify_removed(lab, node, memory)
    helpers.verify_gone(lab, memory)
    return "neither proxy nor redirection is left"


def _address(lab: Lab, node: str) -> str:
    return str(lab.plan.address(node))


def _await_listener(lab: Lab, node: str, memory: Memory, timeout: float = 10) -> None:
    def connects() -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", memory["listen"])) == 0

    deadline = time.monotonic() + timeout
    while not namespace.inside(lab.namespace(node), connects):
        if not helpers.find(lab, memory):
            raise FaultError(f"the proxy of node {node} did not start: {helpers.last_words(lab, memory)}")
        if time.monotonic() > deadline:
            raise WaitTimeout("the proxy to listen", timeout, helpers.last_words(lab, memory), where=f"node {node}")
        time.sleep(0.01)
