"""Faults of servers and floods really take and are really healed, as clients see them."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.faults.base import FaultError
from testbed.faults.connection_flood import ConnectionFlood
from testbed.faults.failing_upstream import FailingUpstream
from testbed.faults.faults import Faults
from testbed.faults.slow_requests import SlowRequests
from testbed.faults.slow_upstream import SlowUpstream
from testbed.net import namespace

pytestmark = pytest.mark.root


@pytest.fixture(autouse=True)
def _server_is_up(watch: Watch) -> None:
    await_true(lambda: watch.get("a", "c")[0] == 200, "the web server")


def test_slow_upstream(faults: Faults, watch: Watch) -> None:
    """Answers come so much later, from another node and from the node itself; then at once again."""
    with faults.active(SlowUpstream(node="c", port=8080, delay="300ms")):
        for source in ("a", "c"):
            status, seconds = watch.get(source, "c")
            assert status == 200
            assert seconds >= 0.3
    await_true(lambda: watch.get("a", "c")[1] < 0.3, "an answer that is not delayed")
    assert watch.tables("c") == []


def test_slow_upstream_delays_each_request_of_a_connection(faults: Faults, watch: Watch) -> None:
    """Not only the first one."""
    server = namespace.inside(watch.lab.namespace("b"), lambda: socket.create_server((watch.address("b"), 0)))
    port = server.getsockname()[1]
    with server, echoing(server), faults.active(SlowUpstream(node="b", port=port, delay="150ms")):
        client = namespace.inside(watch.lab.namespace("a"), socket.socket)
        with client:
            client.connect((watch.address("b"), port))
            for _ in range(3):
                began = time.monotonic()
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert client.recv(99).startswith(b"HTTP/1.1 200")
                assert time.monotonic() - began >= 0.15


@contextmanager
def echoing(server: socket.socket) -> Iterator[None]:
    """Every piece that comes is answered with an empty page."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while connection.recv(4096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)


def test_open_connections_are_left_alone(faults: Faults, watch: Watch) -> None:
    """C11: one that was open before the fault goes on, at its old speed, also across the healing."""
    server = namespace.inside(watch.lab.namespace("b"), lambda: socket.create_server((watch.address("b"), 0)))
    port = server.getsockname()[1]
    client = namespace.inside(watch.lab.namespace("a"), socket.socket)
    with server, echoing(server), client:
        client.settimeout(5)
        client.connect((watch.address("b"), port))

        def ask() -> float:
            began = time.monotonic()
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(99).startswith(b"HTTP/1.1 200")
            return time.monotonic() - began

        ask()
        with faults.active(SlowUpstream(node="b", port=port, delay="500ms")):
            await_true(lambda: ask() < 0.4, "an answer that is not delayed")  # all would be
        await_true(lambda: ask() < 0.4, "the same after the healing")


def test_failing_upstream(faults: Faults, watch: Watch) -> None:
    """Errors for all, then none."""
    with faults.active(FailingUpstream(node="c", port=8080, status=502)):
        assert [watch.get(source, "c")[0] for source in ("a", "b", "c")] == [502] * 3
    assert watch.get("a", "c")[0] == 200


def test_failing_upstream_for_a_share(faults: Faults, watch: Watch) -> None:
    """Some fail, some do not."""
    with faults.active(FailingUpstream(node="c", port=8080, share="50%")):
        seen = {watch.get("a", "c")[0] for _ in range(16)}
    assert seen == {200, 503}


def test_upstream_that_does_not_listen(faults: Faults) -> None:
    """C15: there is nothing to slow down."""
    with pytest.raises(FaultError, match="node c does not listen on port 81"):
        faults.inject(SlowUpstream(node="c", port=81, delay="1s"))


def _established(watch: Watch, node: str) -> int:
    command = ["ss", "-Htn", "state", "established", "( dport = :8080 )"]
    return len(watch.inside(node, *command).stdout.splitlines())


def test_connection_flood(faults: Faults, watch: Watch) -> None:
    """So many connections from each node, no more, until it is healed."""
    flood = ConnectionFlood(nodes=["a", "b"], target="c", port=8080, count=40, rate="400/s", duration="30s")
    with faults.active(flood):
        await_true(lambda: _established(watch, "a") == _established(watch, "b") == 40, "the connections")
        time.sleep(0.2)
        assert _established(watch, "a") == 40
    assert _established(watch, "a") == _established(watch, "b") == 0


def test_c20_flood_ends_by_itself(faults: Faults, watch: Watch) -> None:
    """At its time, and nothing of it is left, although nobody heals it."""
    entry = faults.inject(SlowRequests(nodes=["a"], target="c", port=8080, count=5, interval="100ms", duration="3s"))
    assert _established(watch, "a") > 0
    await_true(lambda: _established(watch, "a") == 0, "its end")
    mark = f"{watch.lab.id}/{entry.id}".encode()
    await_true(lambda: not _marked(mark), "the helper to end")
    faults.heal(entry)


def _marked(mark: bytes) -> bool:
    done = subprocess.run(
        ["grep", "-lsa", mark.decode(), "-r", "/proc", "--include=environ"], capture_output=True, check=False
    )
    return b"/proc/" in done.stdout


def test_flood_of_a_closed_port_fails(faults: Faults) -> None:
    """C15: no connection, no flood."""
    with pytest.raises(FaultError, match=r"0 of 1 floods run|\[0\] open connections"):
        faults.inject(ConnectionFlood(nodes=["a"], target="c", port=81, count=3, duration="200ms"))
    assert faults.entries() == []
