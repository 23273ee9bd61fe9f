"""The core in C and its reference in Python, on the same connections: what they read, make and send is the same."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tcp_pairs import STANDING, bring_to, fill, inside, pair, read

from testbed.pool.migrate import kernel, native, tcp
from testbed.pool.migrate.native import NativeSockets
from testbed.pool.migrate.sockets import PlainSockets
from testbed.pool.migrate.state import TcpState

Pair = tuple[socket.socket, socket.socket]
Change = Callable[[socket.socket, socket.socket], object]
root = pytest.mark.root


def with_settings(_: socket.socket, server: socket.socket) -> None:
    """Some of all levels."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 7))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    level, option = (socket.IPPROTO_IP, socket.IP_TTL)
    if server.family == socket.AF_INET6:
        level, option = socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS
    server.setsockopt(level, option, 5)


def with_queues(client: socket.socket, server: socket.socket) -> None:
    """Unread and unsent bytes."""
    client.sendall(b"question")
    fill(server)


CONNECTIONS: dict[str, tuple[tuple[str, str], Change]] = {
    "idle": (("127.0.0.1", ""), lambda *_: None),
    "settings": (("127.0.0.1", ""), with_settings),
    "settings6": (("::1", ""), with_settings),
    "queues": (("127.0.0.1", ""), with_queues),
    "queues6": (("::1", ""), with_queues),
    "mapped": (("::", "127.0.0.1"), with_queues),
    **{
        kernel.STATES[state]: (("127.0.0.1", ""), lambda client, server, state=state: bring_to(state, client, server))
        for state in STANDING
    },
}


@contextmanager
def frozen(kind: str) -> Iterator[Pair]:
    """Such a connection, with the server's end frozen."""
    hosts, change = CONNECTIONS[kind]
    with pair(*hosts, room=4096) as (client, server):
        change(client, server)
        server.setblocking(False)
        tcp.freeze(server)
        yield client, server


def timeless(state: TcpState) -> TcpState:
    """Without the clock."""
    return replace(state, timestamp=0)


def one_clock(one: TcpState, other: TcpState) -> bool:
    """Whether the timestamps are of the same clock, hours apart at most; clocks of two connections begin anywhere."""
    return (one.timestamp - other.timestamp + (1 << 26)) & 0xFFFFFFFF < 1 << 27


def said_nothing(connection: socket.socket) -> bool:
    """Whether no timer has made it send a segment (``tcpi_segs_out``), and so announce another window."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 140)
    return struct.unpack_from("=I", info, 136) == (0,)


@root
@pytest.mark.parametrize("kind", CONNECTIONS)
@inside
def test_both_read_the_same(kind: str) -> None:
    """One frozen connection, read by one between two readings by the other."""
    with frozen(kind) as (_, server), closing(NativeSockets([server])) as sockets:
        while True:
            wanted = tcp.dump(server)
            assert sockets.dump([0]) == {}
            assert sockets.refresh([0]) == {}
            if timeless(wanted) == timeless(tcp.dump(server)):
                break  # else a timer has fired
        seen = sockets.state(0)
        assert timeless(seen) == timeless(wanted)
        assert one_clock(seen, wanted)
        assert (sockets.size(0), sockets.quiet(0)) == (wanted.size, wanted.quiet)


@root
@pytest.mark.parametrize("kind", CONNECTIONS)
@inside
def test_both_make_the_same(kind: str) -> None:
    """Sockets made one after the other of one state: equal while frozen, and as the old one was once they run."""
    with frozen(kind) as (_, server), closing(NativeSockets([server])) as sockets:
        assert sockets.dump([0]) == {}
        state = sockets.state(0)
        sockets.retire([0])
        while True:
            by_reference = tcp.restore(state)
            wanted = tcp.dump(by_reference)
            quiet = said_nothing(by_reference)
            tcp.retire(by_reference)
            assert sockets.restore([0]) == {}
            made = socket.socket(fileno=os.dup(sockets.made(0)))
            seen = tcp.dump(made)
            if quiet and said_nothing(made):
                break
            made.close()
            sockets.unmake(0)
        assert timeless(seen) == timeless(wanted)
        assert one_clock(seen, wanted)
        with made:
            assert sockets.thaw([0]) == {}
            tcp.freeze(made)
            running = tcp.dump(made)
            assert running.settings == state.settings
            assert running.linger == state.linger
            assert running.fixed_buffers == state.fixed_buffers
            assert (running.send_buffer, running.receive_buffer) == (state.send_buffer, state.receive_buffer)


@root
@inside
def test_what_fails_is_said_and_the_rest_goes_on() -> None:
    """A batch in which one is no connection and one is not asked for: the words are the reference's."""
    with pair() as (client, first), pair() as (_, second), socket.socket() as strange:
        olds = [first, strange, second]
        for one in olds:
            one.setblocking(False)
        said = []
        for core in (PlainSockets, NativeSockets):
            with closing(core(olds)) as sockets:
                said.append((sockets.check([0, 1]), sockets.dump([0, 1]), sockets.refresh([0])))
                tcp.revive(first)
        assert said[0] == said[1]
        assert list(said[0][0]) == list(said[0][1]) == [1]
        first.settimeout(client.gettimeout())
        client.sendall(b"still here")
        assert read(first, 10) == b"still here"
        second.sendall(b"never touched")  # nothing is sent by a frozen socket


@root
@inside
def test_what_came_in_past_the_filter_is_read_again() -> None:
    """A connection that changes between the two looks: the second one counts."""
    with pair() as (client, server):
        server.setblocking(False)
        for core in (PlainSockets, NativeSockets):
            with closing(core([server])) as sockets:
                assert sockets.dump([0]) == {}
                before = sockets.state(0)
                tcp.revive(server)
                client.sendall(b"late")
                while tcp.unchanged(server, before):
                    pass
                tcp.freeze(server)
                assert sockets.refresh([0]) == {}
                assert sockets.state(0).receive_queue == before.receive_queue + b"late"
                tcp.revive(server)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reference does the work where core.c cannot be compiled."""
    native.library.cache_clear()
    monkeypatch.setattr(native.compiled, "folders", lambda _: (tmp_path,))
    monkeypatch.setenv("PATH", "")
    assert native.core() is PlainSockets
    monkeypatch.undo()
    assert native.core() is NativeSockets
