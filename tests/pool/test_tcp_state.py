"""The state of a TCP connection, taken out of one socket and put into another, on loopback in an own namespace."""

from __future__ import annotations

import errno
import select
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from ipaddress import IPv4Address

import pytest
from tcp_pairs import BOTH_CORES, PATIENCE, STANDING, await_state, bring_to, fill, inside, moved, pair, read, read_all

from testbed.net import namespace
from testbed.pool.migrate import kernel, options, tcp
from testbed.pool.migrate.native import NativeSockets
from testbed.pool.migrate.packets import Injector, segment
from testbed.pool.migrate.sockets import Core
from testbed.pool.migrate.state import Refused

pytestmark = pytest.mark.root


@BOTH_CORES
@inside
def test_both_queues_go_along(core: Core) -> None:
    """What the program has not read and what the client has not acknowledged, also more than the client's window."""
    with pair(room=4096) as (client, server):
        client.sendall(b"question")
        sent = fill(server)
        with moved(server, core) as (new, state):
            assert state.receive_queue == b"question"
            assert state.unsent > 0
            assert len(state.send_queue) > 4096
            assert read(new, 8) == b"question"
            assert read(client, len(sent)) == sent
            new.sendall(b"more")
            client.sendall(b"again")
            assert (read(client, 4), read(new, 5)) == (b"more", b"again")


@BOTH_CORES
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@inside
def test_settings_go_along(host: str, core: Core) -> None:
    """What was set at the old socket is set at the new one, and the rest is as new; the buffers do not grow."""
    wanted = {
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
        (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 77,
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 4321,
        (socket.SOL_SOCKET, 47): 5_000_000,
    }
    linger = struct.pack("ii", 1, 3)
    with pair(host) as (client, server), ExitStack() as stack:
        for (level, option), value in wanted.items():
            server.setsockopt(level, option, value)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        before = options.read_buffers(server)
        assert before[2] == 1  # the send buffer is fixed, the other is not
        for _ in range(20):
            server, state = stack.enter_context(moved(server, core))
            assert (state.send_scale, state.receive_scale, state.mss) != (0, 0, 0)
        assert {key: server.getsockopt(*key) for key in wanted} == wanted
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == linger
        assert options.read_congestion(server) == b"reno"
        assert options.read_buffers(server) == before
        info = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        there = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        assert info[5] & 7 == there[5] & 7 == 7  # timestamps, SACK, window scaling
        assert (info[6] & 15, info[6] >> 4) == (there[6] >> 4, there[6] & 15)


@BOTH_CORES
@inside
def test_ipv4_address_in_ipv6_form(core: Core) -> None:
    """A connection over IPv4 that a listener of both families has accepted."""
    with pair("::", "127.0.0.1") as (client, server):
        client.sendall(b"a")
        with moved(server, core) as (new, state):
            assert state.peer[0] == "::ffff:127.0.0.1"
            new.sendall(read(new, 1) + b"b")
            assert read(client, 2) == b"ab"


@BOTH_CORES
@inside
def test_the_port_stays_free_for_listeners(core: Core) -> None:
    """A server that starts anew can listen on a port of which there are moved connections."""
    with (
        pair() as (client, server),
        moved(server, core) as (new, state),
        socket.create_server(("127.0.0.1", state.local[1])),
    ):
        new.sendall(b"x")
        assert read(client, 1) == b"x"


@BOTH_CORES
@pytest.mark.parametrize("state", STANDING, ids=kernel.STATES.get)
@inside
def test_every_state_of_a_connection_that_stands(state: int, core: Core) -> None:
    """What was sent before arrives, each direction that is open can be used and closed, and both sides see the end."""
    with pair() as (client, server):
        client.sendall(b"last words")
        sent = bring_to(state, client, server)
        with moved(server, core) as (new, seen):
            assert seen.state == state
            assert read(new, 10) == b"last words"
            if state in (kernel.ESTABLISHED, kernel.CLOSE_WAIT):
                new.sendall(b"answer")
                sent += b"answer"
                new.shutdown(socket.SHUT_WR)
            assert read_all(client) == sent
            if state not in kernel.FIN_RECEIVED:
                client.sendall(b"bye")
                client.shutdown(socket.SHUT_WR)
                assert read(new, 3) == b"bye"
            assert new.recv(1) == b""
            await_state(new, kernel.CLOSE)  # after TIME_WAIT or LAST_ACK, for who holds the socket
            await_state(client, kernel.CLOSE)


@inside
def test_what_is_not_carried() -> None:
    """The new socket begins with the congestion window of its route, without a round-trip time, and without ECN."""
    with open("/proc/sys/net/ipv4/tcp_ecn", "w") as file:
        file.write("1")
    window = 33
    route = f"ip route replace local 127.0.0.1 dev lo table local scope host src 127.0.0.1 initcwnd {window}"
    with pair() as (client, server):
        for _ in range(30):
            server.sendall(bytes(60_000))
            read(client, 60_000)
        before = facts(server)
        subprocess.run(route.split(), check=True)
        with moved(server, NativeSockets) as (new, _):
            after = facts(new)
    assert before["ecn"]
    assert before["rtt"] > 0
    assert before["window"] != window
    assert after == {"ecn": False, "rtt": 0, "window": window, "timeout": after["timeout"]}
    assert after["timeout"] >= 200_000


def facts(connection: socket.socket) -> dict[str, int]:
    """What a connection has learned (``struct tcp_info``); times in microseconds."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    words = struct.unpack_from("=24I", info, 8)
    return {"ecn": bool(info[5] & 8), "rtt": words[15], "window": words[18], "timeout": words[0]}


@inside
def test_revived_as_if_nothing_had_been() -> None:
    """A frozen connection drops what comes, and goes on in its old socket with what the client repeats."""
    with pair() as (client, server):
        server.sendall(b"before")
        server.setblocking(False)
        sockets = NativeSockets([server])
        assert sockets.dump([0]) == {}
        client.sendall(b"meanwhile")
        tcp.revive(server)
        sockets.close()
        server.settimeout(client.gettimeout())
        server.sendall(b"after")
        assert read(server, 9) == b"meanwhile"
        assert read(client, 11) == b"beforeafter"


@BOTH_CORES
@inside
def test_retired_without_a_word(core: Core) -> None:
    """The other side hears nothing of the end, and somebody who kept the socket cannot use it."""
    with pair() as (client, server), server.dup() as kept:
        server.setblocking(False)
        sockets = core([server])
        assert sockets.dump([0]) == {}
        sockets.retire([0])
        with pytest.raises(OSError, match="connection abort"):
            kept.send(b"still here")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        assert tcp.state_of(client) == kernel.ESTABLISHED
        sockets.close()


@contextmanager
def urgent() -> Iterator[socket.socket]:
    """Out-of-band data that nobody has read."""
    with pair() as (client, server):
        client.send(b"!", socket.MSG_OOB)
        assert select.select([], [], [server], PATIENCE)[2]
        server.setblocking(False)
        yield server


@contextmanager
def reset() -> Iterator[socket.socket]:
    """A connection that the client has ended with a reset."""
    with pair() as (client, server):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await_state(server, kernel.CLOSE)
        yield server


@contextmanager
def time_wait() -> Iterator[socket.socket]:
    """The side that has closed first: what waits is in the kernel, and no socket's any more."""
    with pair() as (client, server):
        server.shutdown(socket.SHUT_WR)
        client.shutdown(socket.SHUT_WR)
        await_state(server, kernel.CLOSE)
        yield server


@contextmanager
def syn_sent(answer: bool = False) -> Iterator[socket.socket]:
    """Nobody answers: the listener drops everything. Or a segment does that opens the connection from the other side
    too."""
    with socket.create_server(("127.0.0.2", 0)) as listener, socket.socket() as client:
        kernel.Filter([(0x06, 0, 0, 0)]).attach(listener)
        client.setblocking(False)
        there = listener.getsockname()
        assert client.connect_ex(there) == errno.EINPROGRESS
        if answer:
            ends = [(IPv4Address(host), port) for host, port in (there, client.getsockname())]
            with closing(Injector()) as injector:
                injector.deliver(segment(*ends[0], *ends[1], 1000, 0, 0x02, 1000))
        await_state(client, kernel.SYN_RECV if answer else kernel.SYN_SENT)
        yield client


@contextmanager
def multipath() -> Iterator[socket.socket]:
    """Both sides speak Multipath TCP."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as client,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        with listener.accept()[0] as server:
            yield server


UNMOVABLE: dict[str, Callable[[], AbstractContextManager[socket.socket]]] = {
    "urgent data": urgent,
    "state CLOSE;": reset,
    "state CLOSE; ": time_wait,
    "state CLOSE;  ": socket.socket,
    "state LISTEN;": lambda: socket.create_server(("127.0.0.1", 0)),
    "state SYN_SENT;": syn_sent,
    "state SYN_RECV;": lambda: syn_sent(answer=True),
    "no TCP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "no TCP socket ": lambda: socket.socketpair()[0],
    "Multipath TCP": multipath,
}


@pytest.mark.parametrize("reason", UNMOVABLE)
@inside
def test_refused_with_a_reason(reason: str) -> None:
    """What cannot be moved is said before it is touched, in the same words by both cores."""
    with UNMOVABLE[reason]() as connection:
        with pytest.raises(Refused, match=reason.strip()) as refused:
            tcp.check(connection)
        assert NativeSockets([connection]).check([0]) == {0: refused.value.what}


@BOTH_CORES
@inside
def test_an_address_that_is_not_here(core: Core) -> None:
    """The namespace lacks the service address: an error, and the old socket goes on."""
    with pair() as (client, server):
        server.setblocking(False)
        sockets = core([server])
        assert sockets.dump([0]) == {}

        def elsewhere() -> dict[int, str]:
            namespace.unshare()
            return sockets.restore([0])

        assert namespace.in_thread(elsewhere) == {0: "[Errno 101] Network is unreachable"}
        sockets.unmake(0)
        sockets.close()
        tcp.revive(server)
        server.sendall(b"x")
        assert read(client, 1) == b"x"
