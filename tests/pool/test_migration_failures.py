"""Moves of connections in which something goes wrong: they stay where they were, or their clients are told."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest
from moving import CLIENT, LIMIT, PoolWorld, fetch, rotate, whole

from testbed.errors import TestbedError
from testbed.net import namespace
from testbed.pool.lab.dispatch import Dispatcher, MoveResult
from testbed.pool.migrate.carry import STEPS

pytestmark = pytest.mark.root


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails(world: PoolWorld, pool: Dispatcher, step: str) -> None:
    """Up to the last step everything goes on where it was, and can be moved later; after it the client is told."""

    def fail(name: str) -> None:
        if name == step:
            raise OSError(f"no {name} today")

    clients = world.client(path="/big", connections=5, pause=0.01)
    pool.assign(pool.epoch + 1, "web2")
    result = pool.move("web1", "web2", "migrate", LIMIT, hook=fail)
    assert result.moved == 0
    assert {failure.reason for failure in result.failed} == {f"no {step} today"}
    if step == "run":
        assert all(failure.lost for failure in result.failed)
        assert len(clients.result()["errors"]) == 5
        return
    assert [failure.lost for failure in result.failed] == [False] * 5
    assert result.left == 5
    assert pool.move("web1", "web2", "migrate", LIMIT).moved == 5
    whole(clients.finish())


def test_no_time_left(world: PoolWorld, pool: Dispatcher) -> None:
    """What was not moved in time goes on where it was, also what the old server had chosen already."""
    clients = world.client(path="/", connections=300, pause=0.5)
    result = rotate(pool, limit=0.0)
    assert 0 < result.moved < 300
    assert (result.moved + result.left, result.failed) == (300, ())
    assert pool.move("web1", "web2", "migrate", 0.0, grace_s=LIMIT).moved == result.left  # while some are given
    whole(clients.finish())


def test_the_next_server_is_dead(world: PoolWorld, pool: Dispatcher) -> None:
    """An error says so; the connections stay, and are moved once there is somebody."""
    clients = world.client(path="/", pause=0.05, connections=3)
    world.services["web2"].signal(signal.SIGKILL)
    world.services["web2"].wait_gone(10)
    with pytest.raises(TestbedError, match="server web2: its control socket cannot be reached"):
        rotate(pool)
    world.serve("web2")
    assert pool.move("web1", "web2", "migrate", LIMIT).moved == 3
    whole(clients.finish())


def test_the_next_server_hangs(world: PoolWorld, pool: Dispatcher) -> None:
    """A server that does not answer holds nobody up for longer than it may, and loses nothing."""
    clients = world.client(path="/", pause=0.05, connections=3)
    patience, pool.patience_s = pool.patience_s, 0.3
    world.services["web2"].signal(signal.SIGSTOP)
    try:
        result = rotate(pool)
    finally:
        pool.patience_s = patience
        world.services["web2"].signal(signal.SIGCONT)
    assert (result.moved, result.left) == (0, 3)
    assert all("'hold' was not answered" in failure.reason for failure in result.failed)
    whole(clients.finish())


def test_the_old_server_hangs(world: PoolWorld, pool: Dispatcher) -> None:
    """It is not waited for longer than it may take, and goes on with its connections when it goes on."""
    clients = world.client(path="/", pause=0.05, connections=3)
    patience, pool.patience_s = pool.patience_s, 0.3
    world.services["web1"].signal(signal.SIGSTOP)
    try:
        with pytest.raises(TestbedError, match="server web1: 'give' was not answered"):
            rotate(pool)
    finally:
        pool.patience_s = patience
        world.services["web1"].signal(signal.SIGCONT)
    assert pool.move("web1", "web2", "migrate", LIMIT).moved == 3
    whole(clients.finish())


def test_other_content(world: PoolWorld, pool: Dispatcher) -> None:
    """A response is not continued from a file with other content: the connection stays and ends where it was."""
    page = world.lab.node_folder("web2") / "www" / "huge"
    before = page.read_bytes()
    page.write_bytes(before[:-1] + b"!")
    results: list[MoveResult] = []
    request = b"GET /huge HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n"
    try:
        answer = fetch(world, request, lambda: results.append(rotate(pool, limit=0.0)), close=False)
    finally:
        page.write_bytes(before)
    reasons = [failure.reason for result in results for failure in result.failed]
    assert reasons == ["web2 does not take it: huge has other content here"]
    assert answer.partition(b"\r\n\r\n")[2] == before


def test_the_dispatcher_has_forgotten(world: PoolWorld, pool: Dispatcher) -> None:
    """A connection that is not tracked any more cannot be led elsewhere: it is left where it is."""
    with namespace.inside(
        world.lab.namespace(CLIENT), lambda: socket.create_connection((world.address, 80), LIMIT)
    ) as idle:
        assert len(pool.connections("web1")) == 1
        world.lab.exec("web", ["sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_established=0"], check=True)
        try:
            idle.sendall(b"GET / HTTP/1.1\r\n")  # its time is set anew, and is over
            deadline = time.monotonic() + LIMIT
            while pool.connections("web1"):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            result = rotate(pool)
        finally:
            name = "net.netfilter.nf_conntrack_tcp_timeout_established"
            world.lab.exec("web", ["sysctl", "-qw", f"{name}=432000"], check=True)
        assert [failure.lost for failure in result.failed] == [False]
        assert "lost track of it" in result.failed[0].reason


def test_somebody_else_at_the_control_socket(world: PoolWorld, pool: Dispatcher) -> None:
    """The folder is the server's own, so anything may listen there: root, or a process of another namespace."""
    path = world.lab.node_folder("web2") / "migrate.sock"
    aside = path.with_suffix(".aside")
    path.rename(aside)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as false:
        false.bind(str(path))
        false.listen()
        try:
            with pytest.raises(TestbedError, match="user 0 listens on its control socket"):
                rotate(pool)
            os.chown(path, 0, 0)
        finally:
            path.unlink()
            aside.rename(path)
