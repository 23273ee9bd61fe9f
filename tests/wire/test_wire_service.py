"""What clients of the wire's socket cannot break."""

from __future__ import annotations

import json
import os
import random
import socket
import stat

import pytest
from wire_traffic import ANY_CORE, MakeWorld, link_name, reaches

from bench.wire_world import World, pair
from testbed.net.wire.service import address_of

pytestmark = [pytest.mark.root, ANY_CORE]


def connect(world: World) -> socket.socket:
    """A raw connection."""
    result = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with address_of(world.folder / "wire.sock") as address:
        result.connect(address)
    result.settimeout(5)
    return result


def test_only_root_may_talk(make_world: MakeWorld) -> None:
    """The socket belongs to root alone."""
    world = make_world(pair(delay="1ms"))
    mode = (world.folder / "wire.sock").stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600
    assert mode.st_uid == os.geteuid()


def test_garbage(make_world: MakeWorld) -> None:
    """Whatever is sent, the wire goes on, and sensible requests are answered."""
    world = make_world(pair(delay="1ms"))
    name = link_name(world)
    chance = random.Random(1)
    garbage = [
        b"\n",
        b"\0" * 1000 + b"\n",
        b"[" * 100_000 + b"\n",
        b"{}\n",
        b'{"do": 1}\n',
        b'{"do": "explode"}\n',
        b'{"do": ["change"]}\n',
        b'{"do": "change"}\n',
        b'{"do": "change", "link": []}\n',
        b'{"do": "change", "link": "%b", "forward": [1]}\n' % name.encode(),
        b'{"do": "change", "link": "%b", "forward": {"delay_us": {}}}\n' % name.encode(),
        b'{"do": "change", "link": "%b", "forward": {"loss": NaN}}\n' % name.encode(),
        b'{"do": "change", "link": "%b", "self": 1}\n' % name.encode(),
        b'{"do": "set_up", "link": "%b", "up": 3}\n' % name.encode(),
        b'{"do": "add", "link": {"name": "x"}}\n',
        b'{"do": "add", "link": {"name": "x", "a": 1, "b": 2}}\n',
        b'{"do": "add", "link": {"name": [], "a": {"namespace": 1, "ifname": 2}, "b": {}}}\n',
        b'{"do": "status", "x": 1}\n',
        b'{"do": "stat',
        b"x" * 1_000_000,
        *(chance.randbytes(chance.randrange(1, 3000)) + b"\n" for _ in range(50)),
    ]
    for line in garbage:
        with connect(world) as client:
            try:
                client.sendall(line)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(65536)
            except OSError:
                continue
            assert answer == b"" or "error" in json.loads(answer.splitlines()[0]), line
    with world.wire() as wire:
        assert wire.status().starts == 1
        assert list(wire.links()) == [name]
        assert wire.links()[name].forward.delay_us == 1000
    assert reaches(world)


def test_clients_that_do_not_read(make_world: MakeWorld) -> None:
    """A client that asks and never reads, and more clients than there is room for, keep nobody else waiting."""
    world = make_world(pair(delay="1ms"))
    deaf = connect(world)
    deaf.setblocking(False)
    try:
        for _ in range(200_000):
            deaf.send(b'{"do": "statistics"}\n')
    except OSError:
        pass
    crowd = [connect(world) for _ in range(80)]
    for client in crowd:
        client.close()
    with world.wire() as wire:
        assert wire.status().starts == 1
    deaf.close()


def test_pipelined_requests(make_world: MakeWorld) -> None:
    """Several requests in one packet are answered in order, and a request in pieces once."""
    world = make_world(pair(delay="1ms"))
    with connect(world) as client, client.makefile("rb") as answers:
        client.sendall(b'{"do": "links"}\n{"do": "status"}\n{"do"')
        assert link_name(world) in json.loads(answers.readline())["ok"]
        assert "pid" in json.loads(answers.readline())["ok"]
        client.sendall(b': "links"}\n')
        assert link_name(world) in json.loads(answers.readline())["ok"]


def test_long_path(make_world: MakeWorld, core: str) -> None:
    """A state folder may be deeper than the path of a unix socket."""
    world = make_world(pair(delay="1ms"))
    deep = world.folder / ("d" * 100)
    deep.mkdir()
    from testbed.net.wire import engine

    pid = engine.start(deep, world.id, [])
    from testbed.net.wire.control import Wire

    with Wire(deep) as wire:
        assert wire.status().supervisor == pid
        assert wire.links() == {}
