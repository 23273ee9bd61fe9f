"""Both ends of TCP connections on loopback, and moving one end into another socket."""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from testbed.net import namespace
from testbed.net.netlink import Netlink
from testbed.net.requests import LOOPBACK, up
from testbed.pool.migrate import kernel, tcp
from testbed.pool.migrate.native import NativeSockets
from testbed.pool.migrate.packets import Injector
from testbed.pool.migrate.sockets import Core, PlainSockets
from testbed.pool.migrate.state import TcpState

Pair = tuple[socket.socket, socket.socket]
PATIENCE = 30.0
BOTH_CORES = pytest.mark.parametrize("core", [PlainSockets, NativeSockets], ids=["python", "c"])
STANDING = [
    kernel.ESTABLISHED,
    kernel.FIN_WAIT1,
    kernel.FIN_WAIT2,
    kernel.CLOSE_WAIT,
    kernel.LAST_ACK,
    kernel.CLOSING,
]
"""States in which a connection is moved."""


def inside(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a new namespace with loopback."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        def work() -> None:
            namespace.unshare()
            with closing(Netlink()) as netlink:
                netlink.apply("test", [up(LOOPBACK, "lo")])
            test(**fixtures)

        namespace.in_thread(work)

    return run


@contextmanager
def pair(
    host: str = "127.0.0.1", client_host: str = "", room: int = 0
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's end and a server's end; ``room``: of the client's receive buffer. The port is free for others."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = family == socket.AF_INET6 and bool(client_host)
    with socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as listener:
        client = socket.socket(socket.AF_INET6 if ":" in (client_host or host) else socket.AF_INET)
        if room:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        client.settimeout(PATIENCE)
        client.connect((client_host or host, listener.getsockname()[1]))
        server = listener.accept()[0]
    server.settimeout(PATIENCE)
    with client, server:
        yield client, server


@contextmanager
def moved(server: socket.socket, core: Core) -> Iterator[tuple[socket.socket, TcpState]]:
    """The same connection in another socket; ``server`` has ended."""
    server.setblocking(False)  # as servers have them; with a time-out Python would wait before it looks
    with closing(core([server])) as sockets, closing(Injector()) as injector:
        for step in (sockets.check, sockets.dump, sockets.refresh):
            assert step([0]) == {}
        sockets.retire([0])
        server.close()
        for step in (sockets.restore, sockets.thaw):
            assert step([0]) == {}
        state = sockets.state(0)
        assert sockets.quiet(0) == state.quiet
        assert sockets.size(0) == state.size
        new = socket.socket(fileno=os.dup(sockets.made(0)))
        injector.finish(state)
        injector.ask(state)
    new.settimeout(PATIENCE)
    with new:
        yield new, state


def read(connection: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, f"it ended after {len(data)} of {count} bytes"
        data += piece
    return data


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side's end."""
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def fill(server: socket.socket) -> bytes:
    """Send as much as goes, more than the other side has room for; what was sent."""
    server.setblocking(False)
    size = 0
    while True:
        try:
            size += server.send(b"z" * 65536)
        except BlockingIOError:
            return b"z" * size


def bring_to(state: int, client: socket.socket, server: socket.socket) -> bytes:
    """Close directions until the server's end is in ``state``; what the server has sent. Its FIN waits behind that
    where the client must not have it yet."""
    sent = fill(server) if state in (kernel.FIN_WAIT1, kernel.LAST_ACK, kernel.CLOSING) else b""
    if state in (kernel.FIN_WAIT1, kernel.FIN_WAIT2, kernel.CLOSING):
        server.shutdown(socket.SHUT_WR)
    if state in (kernel.CLOSE_WAIT, kernel.LAST_ACK, kernel.CLOSING):
        client.shutdown(socket.SHUT_WR)
    if state == kernel.LAST_ACK:
        await_state(server, kernel.CLOSE_WAIT)
        server.shutdown(socket.SHUT_WR)
    await_state(server, state)
    return sent


def await_state(connection: socket.socket, state: int) -> None:
    """The other side's kernel takes its time to acknowledge."""
    deadline = time.monotonic() + PATIENCE
    while tcp.state_of(connection) != state and time.monotonic() < deadline:
        time.sleep(0.001)
    assert kernel.STATES[tcp.state_of(connection)] == kernel.STATES[state]
