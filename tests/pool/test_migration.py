"""Connections of real clients, moved between servers in namespaces and containers: every byte."""

from __future__ import annotations

import http.client
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from moving import CLIENT, LIMIT, PoolWorld, fetch, rotate, whole

from testbed.net import namespace
from testbed.plan.types import Impairment
from testbed.pool.lab.dispatch import Dispatcher, MoveResult
from testbed.pool.migrate.sockets import PlainSockets

pytestmark = pytest.mark.root


@pytest.mark.parametrize("connections, path", [(1, "/big"), (50, "/big"), (500, "/")])
def test_downloads(world: PoolWorld, pool: Dispatcher, connections: int, path: str) -> None:
    """All connections move there and back in the middle of their responses; each byte arrives once and in order."""
    pause = 0 if path == "/big" else 0.5
    clients = world.client(path=path, connections=connections, pause=pause)
    for _ in range(3):
        result = rotate(pool)
        assert (result.moved, result.failed, result.left) == (connections, (), 0)
    whole(clients.finish())


def test_downloads_moved_by_the_reference(world: PoolWorld, pool: Dispatcher) -> None:
    """The same where there is no compiler."""
    clients = world.client(path="/big", connections=20)
    best, pool.core = pool.core, PlainSockets
    try:
        moved = [rotate(pool).moved for _ in range(2)]
    finally:
        pool.core = best
    whole(clients.finish())
    assert moved == [20, 20]


def test_two_thousand(world: PoolWorld, pool: Dispatcher) -> None:
    """All of 2 000 connections are alive after a move, also those whose response was under way; no byte is wrong."""
    page = (world.lab.node_folder("web1") / "www" / "index.html").read_bytes()

    def answers(connection: http.client.HTTPConnection, server: str) -> bool:
        response = connection.getresponse()
        return (response.read(), response.headers["X-Server"]) == (page, server)

    def connect() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(world.address, timeout=LIMIT)
        connection.connect()
        return stack.enter_context(closing(connection))

    with ExitStack() as stack:
        all_of_them = namespace.inside(world.lab.namespace(CLIENT), lambda: [connect() for _ in range(2000)])
        for connection in all_of_them:
            connection.request("GET", "/")
        asked_before, asked_after = all_of_them[:1000], all_of_them[1000:]
        assert all(answers(connection, "web1") for connection in asked_after)
        result = rotate(pool)
        assert (result.moved, result.failed, result.left) == (2000, (), 0)
        for connection in asked_after:
            connection.request("GET", "/")
        for connection in asked_before:
            response = connection.getresponse()
            assert (response.read(), response.headers["X-Server"] in world.names) == (page, True)
            connection.request("GET", "/")
        assert all(answers(connection, "web2") for connection in all_of_them)


@pytest.mark.parametrize("connections, size", [(1, 16 << 20), (20, 1 << 20)])
def test_uploads(world: PoolWorld, pool: Dispatcher, connections: int, size: int) -> None:
    """The server that gets the end of an upload has all of it: its SHA-256, and the file."""
    clients = world.client(connections=connections, upload=size)
    moved = [rotate(pool).moved for _ in range(3)]
    found = clients.finish()
    whole(found)
    assert moved == [connections] * 3
    stored = {name for server in world.names for name in world.uploaded(server)}
    assert stored >= {str(number) for number in range(connections)}


def test_moved_again_at_once(world: PoolWorld, pool: Dispatcher) -> None:
    """Moves in close succession: the client's kernel answers every time, so that nothing waits for a time-out."""
    clients = world.client(path="/huge")
    for _ in range(12):
        assert rotate(pool).failed == ()
    found = clients.finish()
    whole(found)


@pytest.mark.parametrize("close", [True, False])
def test_half_closed(world: PoolWorld, pool: Dispatcher, close: bool) -> None:
    """The client has said that it sends no more, or the server has sent everything and its end: both are moved."""
    head = b"GET /big HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n"
    results: list[MoveResult] = []
    answer = fetch(world, head, lambda: results.append(rotate(pool)), close=close)
    assert [(result.moved, result.failed) for result in results] == [(1, ())]
    body = answer.partition(b"\r\n\r\n")[2]
    assert body == (world.lab.node_folder("web1") / "www" / "big").read_bytes()


def test_delay_and_loss() -> None:
    """A link with delay and loss to the clients, delay to the servers: downloads and uploads are whole."""
    far = Impairment(delay_us=10_000, loss=0.01, rate_bps=40_000_000)
    files = {"index.html": 1024, "big": 1 << 20}
    with PoolWorld(link=Impairment(delay_us=3_000), client_link=far, files=files) as world:
        dispatcher = world.dispatcher
        assert dispatcher is not None
        down = world.client(path="/big", connections=6)
        up = world.client(connections=3, upload=256 << 10)
        results = [rotate(dispatcher) for _ in range(4)]
        assert [result.failed for result in results] == [()] * 4
        assert sum(result.moved for result in results) >= 4 * 8
        for clients in (down, up):
            found = clients.finish()
            whole(found)


def test_ipv6() -> None:
    """The same over IPv6."""
    with PoolWorld(ipv6=True) as world:
        dispatcher = world.dispatcher
        assert dispatcher is not None
        down = world.client(path="/big", connections=5)
        up = world.client(connections=2, upload=1 << 20)
        for _ in range(3):
            result = rotate(dispatcher)
            assert (result.moved, result.failed) == (7, ())
        for clients in (down, up):
            whole(clients.finish())


@pytest.mark.engine
def test_between_containers() -> None:
    """From one hardened container to another, without privileges in either; the first is removed at once."""
    with PoolWorld(containers=True) as world:
        dispatcher = world.dispatcher
        assert dispatcher is not None
        down = world.client(path="/big", connections=5)
        up = world.client(connections=2, upload=4 << 20)
        result = rotate(dispatcher)
        assert (result.moved, result.failed) == (7, ())
        lab = world.lab
        status = Path(f"/proc/{world.services['web2'].pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        runtime = lab.runtime("web1")
        runtime.remove_node(lab.place("web1"))  # type: ignore[attr-defined]
        for clients in (down, up):
            whole(clients.finish())
