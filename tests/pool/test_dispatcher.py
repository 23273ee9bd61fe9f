"""The dispatcher of a pool: who gets new connections, what becomes of old ones, and who is not heard."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from typing import Any

import pytest
from moving import CLIENT, LIMIT, PoolWorld, rotate, whole

from testbed.errors import TestbedError
from testbed.net import namespace
from testbed.pool.lab.dispatch import Dispatcher
from testbed.pool.migrate.packets import segment

pytestmark = pytest.mark.root


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


@pytest.mark.parametrize("hears", [True, False])
def test_a_port_is_used_again_after_a_reset(world: PoolWorld, pool: Dispatcher, hears: bool) -> None:
    """What tracking still knows of a connection that was reset does not refuse the client's next one, from its port."""

    def connect(source: int = 0) -> socket.socket:
        return socket.create_connection((world.address, 80), LIMIT, ("", source))

    inside = world.lab.namespace(CLIENT)
    with namespace.inside(inside, connect) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the port is free at once
        port = client.getsockname()[1]
        assert answer(client)
        rotate(pool, "reset", 0)
        if hears:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    with namespace.inside(inside, lambda: connect(port)) as again:
        assert answer(again)


def answer(client: socket.socket) -> bool:
    """Ask for a page, and take all of the answer; whether it was one."""
    client.sendall(b"GET / HTTP/1.0\r\nHost: web\r\nConnection: keep-alive\r\n\r\n")
    response = http.client.HTTPResponse(client)
    response.begin()
    response.read()
    return response.status == 200


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
