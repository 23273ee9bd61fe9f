"""A lab whose nodes are asked by probes, and servers that live inside its nodes."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from states import own_state

from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.model.topology import Topology
from testbed.net.namespace import inside
from testbed.plan.expand import expand


@contextmanager
def lab_of(**topology: Any) -> Iterator[Lab]:
    """A lab in a state folder of its own; gone afterwards."""
    plan, problems = expand(Topology.model_validate({"name": f"probes-{os.getpid()}", **topology}))
    assert problems == []
    with own_state():
        yield up(plan)


class Recorded:
    """A recorder that keeps everything, on the monotonic clock itself."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.rows: list[tuple[float, str, str, float]] = []

    def event(self, kind: str, node: str = "", *, t: float | None = None, **detail: Any) -> None:
        """Keep it."""
        self.events.append((kind, node, detail))

    def samples(self, rows: Any) -> None:
        """Keep them."""
        self.rows.extend(rows)

    def since_start(self, t: float) -> float:
        """No start but the clock's own."""
        return t

    def values(self, series: str) -> list[float]:
        """The values of a series."""
        return [value for _, name, _, value in self.rows if name == series]

    def probes(self) -> list[dict[str, Any]]:
        """Details of the calls."""
        return [detail for kind, _, detail in self.events if kind == "probe"]


@contextmanager
def serving(
    lab: Lab, node: str, port: int, answer: Callable[[http.server.BaseHTTPRequestHandler], None]
) -> Iterator[None]:
    """An HTTP server in ``node`` that answers as the function says."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
    server.daemon_threads = True
    server.socket.close()
    server.socket = inside(lab.namespace(node), lambda: socket.create_server((str(lab.plan.address(node)), port)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def answering(lab: Lab, node: str, port: int, answer: Callable[[bytes], bytes | None]) -> Iterator[None]:
    """A UDP server in ``node``; ``answer`` of a datagram is sent back, None is silence."""
    opened = inside(lab.namespace(node), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    opened.bind((str(lab.plan.address(node)), port))

    def work() -> None:
        while True:
            data, source = opened.recvfrom(65536)
            if data == b"end":
                return
            said = answer(data)
            if said is not None:
                opened.sendto(said, source)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closer = inside(lab.namespace(node), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with closer:
            closer.sendto(b"end", opened.getsockname())
        thread.join()
        opened.close()
