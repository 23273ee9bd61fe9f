"""Connections of real clients, moved between servers in namespaces and containers: every byte, and what goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # for bench.pool_world

from bench.pool_world import CLIENT, PoolWorld
from testbed.errors import TestbedError
from testbed.net import namespace
from testbed.plan.types import Impairment
from testbed.pool.dispatch import Dispatcher, Mode, MoveResult
from testbed.pool.migrate.carry import STEPS
from testbed.pool.migrate.packets import segment

pytestmark = pytest.mark.root
LIMIT = 20.0


@pytest.fixture(scope="module")
def world() -> Iterator[PoolWorld]:
    """Two servers, plain links."""
    with PoolWorld(files={"index.html": 1024, "big": 8 << 20, "huge": 64 << 20}) as made:
        yield made


@pytest.fixture
def pool(world: PoolWorld) -> Iterator[Dispatcher]:
    """The first server serves, and has no connection left of the test before."""
    dispatcher = world.dispatcher
    assert dispatcher is not None
    dispatcher.assign(dispatcher.epoch + 1, "web1")
    yield dispatcher
    for name in world.names:
        dispatcher.move(name, name, "reset", 0)


def rotate(dispatcher: Dispatcher, mode: Mode = "migrate", limit: float = LIMIT) -> MoveResult:
    """The other server takes over."""
    old = dispatcher.serving
    assert old is not None
    new = "web2" if old == "web1" else "web1"
    assert dispatcher.assign(dispatcher.epoch + 1, new)
    return dispatcher.move(old, new, mode, limit)


def whole(result: dict[str, Any]) -> None:
    """Nothing was lost and nothing was wrong."""
    assert (result["errors"], result["wrong"]) == ([], [])


@pytest.mark.parametrize("connections, path", [(1, "/big"), (50, "/big"), (500, "/")])
def test_downloads(world: PoolWorld, pool: Dispatcher, connections: int, path: str) -> None:
    """All connections move there and back in the middle of their responses; each byte arrives once and in order."""
    pause = 0 if path == "/big" else 0.5
    clients = world.client(path=path, connections=connections, pause=pause)
    for _ in range(3):
        result = rotate(pool)
        assert (result.moved, result.failed, result.left) == (connections, (), 0)
    whole(clients.finish())


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


def fetch(world: PoolWorld, request: bytes, after: Callable[[], None], *, close: bool) -> bytes:
    """What comes to a client that reads nothing before ``after``; ``close``: it says first that it sends no more."""
    connection = namespace.inside(
        world.lab.namespace(CLIENT), lambda: socket.create_connection((world.address, 80), LIMIT)
    )
    with connection:
        connection.sendall(request)
        if close:
            connection.shutdown(socket.SHUT_WR)
        connection.recv(1, socket.MSG_PEEK)
        after()
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("close", [True, False])
def test_half_closed(world: PoolWorld, pool: Dispatcher, close: bool) -> None:
    """The client has said that it sends no more, or the server has sent everything and its end: both are moved."""
    head = b"GET /big HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n"
    results: list[MoveResult] = []
    answer = fetch(world, head, lambda: results.append(rotate(pool)), close=close)
    assert [(result.moved, result.failed) for result in results] == [(1, ())]
    body = answer.partition(b"\r\n\r\n")[2]
    assert body == (world.lab.node_folder("web1") / "www" / "big").read_bytes()


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


def test_other_content(world: PoolWorld, pool: Dispatcher) -> None:
    """A response is not continued from a file with other content: the connection stays and ends where it was."""
    page = world.lab.node_folder("web2") / "www" / "huge"
    before = page.read_bytes()
    page.write_bytes(before[:-1] + b"!")
    clients = world.client(path="/huge")
    try:
        result = rotate(pool, limit=0.0)
        assert [failure.reason for failure in result.failed] == ["web2 does not take it: huge has other content here"]
        whole(clients.finish())
    finally:
        page.write_bytes(before)


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


def test_drain(world: PoolWorld, pool: Dispatcher) -> None:
    """Old connections finish at their server, new ones go to the next; who takes too long is still there after it."""
    slow = world.client(path="/", pause=0.1, seconds=1)
    assert rotate(pool, "drain", 0.2).left == 1
    fast = world.client(path="/", seconds=0.1)
    assert set(fast.result()["servers"]) == {"web2"}
    assert pool.move("web1", "web2", "drain", LIMIT).left == 0
    found = slow.result()
    whole(found)
    assert set(found["servers"]) == {"web1"}


def test_reset(world: PoolWorld, pool: Dispatcher) -> None:
    """All connections of the old server end at once, and their clients are told; new ones are served."""
    clients = world.client(path="/", pause=0.05, connections=10)
    rotate(pool, "reset", 0)
    errors = clients.result()["errors"]
    assert len(errors) == 10
    assert all("reset by peer" in error for error in errors)
    assert set(world.client(path="/", seconds=0.1).result()["servers"]) == {"web2"}


def test_who_gave_up_is_not_heard(world: PoolWorld, pool: Dispatcher) -> None:
    """What a server sends in the name of a connection that is another's by now does not reach the client."""

    def listen() -> tuple[socket.socket, socket.socket]:
        everything = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
        everything.settimeout(LIMIT)
        return everything, socket.create_connection((world.address, 80), LIMIT)

    heard, client = namespace.inside(world.lab.namespace(CLIENT), listen)
    with heard, client:
        (connection,) = pool.connections("web1")
        assert rotate(pool).moved == 1

        def say(number: int) -> None:
            ends = (connection.service, 80, connection.client, connection.client_port)
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
                raw.sendto(segment(*ends, number, 0, 0x04, 0), (str(connection.client), 0))

        # which of many numbers tracking takes for possible depends on where the connection is
        for server, number in (("web1", 1111), ("web1", 1111 + (1 << 31)), ("web2", 2222), ("web2", 2222 + (1 << 31))):
            namespace.inside(world.lab.namespace(server), lambda number=number: say(number))
        numbers = []
        while not {2222, 2222 + (1 << 31)} & set(numbers):
            numbers.append(int.from_bytes(heard.recv(2048)[24:28], "big"))
        assert not {1111, 1111 + (1 << 31)} & set(numbers)


def test_epochs(pool: Dispatcher) -> None:
    """A word that comes late changes nothing; one for a server that there is not is an error."""
    epoch = pool.epoch
    assert pool.assign(epoch + 5, "web2")
    assert not pool.assign(epoch + 4, "web1")
    assert not pool.assign(epoch + 5, "web1")
    assert (pool.serving, pool.epoch) == ("web2", epoch + 5)
    with pytest.raises(TestbedError, match="'web9' is no server of this pool"):
        pool.assign(epoch + 9, "web9")


def test_nobody_serves_for_a_while(world: PoolWorld, pool: Dispatcher) -> None:
    """A request waits at the dispatcher, and the next server takes it."""
    pool.assign(pool.epoch + 1, None)
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(world.client(path="/", seconds=0.1).result()))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    pool.assign(pool.epoch + 1, "web2")
    waiting.join(LIMIT)
    assert set(answers[0]["servers"]) == {"web2"}


def test_control_socket_is_for_root_alone(world: PoolWorld) -> None:
    """Nobody else may ask a server for its connections, and the server's file says so too."""
    path = world.lab.node_folder("web1") / "migrate.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    program = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('migrate.sock');"
        ' s.send(b\'{"op": "give", "most": 1, "but": []}\'); print(len(s.recv(100)))'
    )
    argv = ["sh", "-c", f'cd {path.parent} && python3 -c "$0"', program]
    done = world.lab.exec("web1", argv, root=False)
    assert (done.returncode, done.stdout.strip()) in ((0, "0"), (1, ""))
    assert done.stdout.strip() == "0" or any(word in done.stderr for word in ("ConnectionReset", "BrokenPipe"))


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
