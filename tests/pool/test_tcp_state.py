"""The state of a TCP connection, taken out of one socket and put into another, on loopback in an own namespace."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from testbed.net import namespace
from testbed.net.netlink import Netlink
from testbed.net.requests import LOOPBACK, up
from testbed.pool.migrate import kernel, options, tcp
from testbed.pool.migrate.packets import Injector, checksum, segment, with_checksum
from testbed.pool.migrate.tcp import Refused, TcpState

pytestmark = pytest.mark.root
Pair = tuple[socket.socket, socket.socket]


def inside(work: Callable[[], None]) -> None:
    """Run a test in a new namespace with loopback."""

    def run() -> None:
        namespace.unshare()
        netlink = Netlink()
        netlink.apply("test", [up(LOOPBACK, "lo")])
        netlink.close()
        work()

    namespace.in_thread(run)


def pair(host: str = "127.0.0.1") -> Pair:
    """A client's end and a server's end; the port is free for others at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2], 5)
        return client, listener.accept()[0]


def moved(server: socket.socket) -> tuple[socket.socket, TcpState]:
    """The same connection in another socket."""
    server.setblocking(False)  # as servers have them; with a time-out Python would wait before it looks
    tcp.check(server)
    tcp.freeze(server)
    state = tcp.dump(server)
    assert tcp.unchanged(server, state)
    tcp.retire(server)
    new = tcp.restore(state)
    injector = Injector()
    tcp.thaw(new, state)
    injector.finish(state)
    injector.ask(state)
    injector.close()
    new.settimeout(5)
    return new, state


def read(connection: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        assert piece, f"it ended after {len(data)} of {count} bytes"
        data += piece
    return data


def test_both_queues_go_along() -> None:
    """What the program has not read and what the client has not acknowledged, also more than the client's window."""

    def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            server = listener.accept()[0]
        client.settimeout(5)
        client.sendall(b"question")
        server.setblocking(False)
        answer = bytes(range(256)) * 2000
        sent = server.send(answer)
        new, state = moved(server)
        assert state.receive_queue == b"question"
        assert state.unsent > 0
        assert len(state.send_queue) > 4096
        assert read(new, 8) == b"question"
        assert read(client, sent) == answer[:sent]
        new.sendall(b"more")
        client.sendall(b"again")
        assert (read(client, 4), read(new, 5)) == (b"more", b"again")
        for item in (client, new):
            item.close()

    inside(work)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_settings_go_along(host: str) -> None:
    """What was set at the old socket is set at the new one, and the rest is as new; the buffers do not grow."""

    def work() -> None:
        client, server = pair(host)
        wanted = {
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
            (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 77,
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 4321,
            (socket.SOL_SOCKET, 47): 5_000_000,
        }
        for (level, option), value in wanted.items():
            server.setsockopt(level, option, value)
        linger = struct.pack("ii", 1, 3)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        before = options.read_buffers(server)
        assert before[2] == 1  # the send buffer is fixed, the other is not
        facts = {}
        for _ in range(20):
            server, state = moved(server)
            facts = {key: server.getsockopt(*key) for key in wanted}
            assert (state.send_scale, state.receive_scale, state.mss) != (0, 0, 0)
        assert facts == wanted
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == linger
        assert options.read_congestion(server) == b"reno"
        assert options.read_buffers(server) == before
        info = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        there = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        assert info[5] & 7 == there[5] & 7 == 7  # timestamps, SACK, window scaling
        assert (info[6] & 15, info[6] >> 4) == (there[6] >> 4, there[6] & 15)
        client.close()
        server.close()

    inside(work)


def test_ipv4_address_in_ipv6_form() -> None:
    """A connection over IPv4 that a listener of both families has accepted."""

    def work() -> None:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
            client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 5)
            server = listener.accept()[0]
        client.sendall(b"a")
        new, state = moved(server)
        assert state.peer[0] == "::ffff:127.0.0.1"
        new.sendall(read(new, 1) + b"b")
        assert read(client, 2) == b"ab"
        client.close()
        new.close()

    inside(work)


def test_the_port_stays_free_for_listeners() -> None:
    """A server that starts anew can listen on a port of which there are moved connections."""

    def work() -> None:
        client, server = pair()
        new, state = moved(server)
        with socket.create_server(("127.0.0.1", state.local[1])):
            new.sendall(b"x")
            assert read(client, 1) == b"x"
        client.close()
        new.close()

    inside(work)


def half_closed(state: int) -> tuple[Pair, Callable[[socket.socket, socket.socket], None]]:
    """A connection in ``state``, and what must still be possible."""
    client, server = pair()
    client.settimeout(5)
    if state == kernel.CLOSE_WAIT:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)

        def after(client: socket.socket, server: socket.socket) -> None:
            assert read(server, 10) == b"last words"
            assert server.recv(1) == b""
            server.sendall(b"answer")
            server.close()
            assert read(client, 6) == b"answer"
            assert client.recv(1) == b""

    elif state in (kernel.FIN_WAIT1, kernel.FIN_WAIT2):
        server.setblocking(False)
        size = 0
        if state == kernel.FIN_WAIT1:  # more than the client has room for, so that the FIN waits behind it
            while True:
                try:
                    size += server.send(b"z" * 65536)
                except BlockingIOError:
                    break
        server.shutdown(socket.SHUT_WR)

        def after(client: socket.socket, server: socket.socket) -> None:
            assert read(client, size) == b"z" * size
            assert client.recv(1) == b""
            client.sendall(b"bye")
            assert read(server, 3) == b"bye"

    else:
        server.setblocking(False)
        size = 0
        client.shutdown(socket.SHUT_WR)
        while True:
            try:
                size += server.send(b"z" * 65536)
            except BlockingIOError:
                break
        server.shutdown(socket.SHUT_WR)

        def after(client: socket.socket, server: socket.socket) -> None:
            assert read(client, size) == b"z" * size
            assert client.recv(1) == b""

    return (client, server), after


@pytest.mark.parametrize("state", [kernel.CLOSE_WAIT, kernel.FIN_WAIT1, kernel.FIN_WAIT2, kernel.LAST_ACK])
def test_half_closed(state: int) -> None:
    """A connection of which one or both directions have been closed goes on where it was."""

    def work() -> None:
        (client, server), after = half_closed(state)
        deadline = time.monotonic() + 5
        while tcp.state_of(server) != state and time.monotonic() < deadline:
            time.sleep(0.001)  # the client's kernel takes its time to acknowledge
        assert tcp.state_of(server) == state
        new, seen = moved(server)
        assert seen.state == state
        after(client, new)
        client.close()
        new.close()

    inside(work)


def test_revived_as_if_nothing_had_been() -> None:
    """A frozen connection drops what comes, and goes on in its old socket with what the client repeats."""

    def work() -> None:
        client, server = pair()
        client.settimeout(5)
        server.settimeout(5)
        server.sendall(b"before")
        tcp.freeze(server)
        tcp.dump(server)
        client.sendall(b"meanwhile")
        tcp.revive(server)
        server.sendall(b"after")
        assert read(server, 9) == b"meanwhile"
        assert read(client, 11) == b"beforeafter"
        client.close()
        server.close()

    inside(work)


def test_retired_without_a_word() -> None:
    """The other side hears nothing of the end, and somebody who kept the socket cannot use it."""

    def work() -> None:
        client, server = pair()
        kept = server.dup()
        tcp.freeze(server)
        tcp.dump(server)
        tcp.retire(server)
        with pytest.raises(OSError, match="connection abort"):
            kept.send(b"still here")
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        assert tcp.state_of(client) == kernel.ESTABLISHED
        client.close()

    inside(work)


def unmovable() -> Iterator[tuple[str, Callable[[], socket.socket]]]:
    """What is refused, and how it comes about."""
    keep: list[socket.socket] = []

    def urgent() -> socket.socket:
        client, server = pair()
        keep.append(client)
        client.send(b"!", socket.MSG_OOB)
        return server

    def closed() -> socket.socket:
        client, server = pair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        return server

    def multipath() -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
        client.connect(listener.getsockname())
        keep.extend((listener, client))
        return listener.accept()[0]

    yield "urgent data", urgent
    yield "state CLOSE;", closed
    yield "state CLOSE;", lambda: socket.socket()
    yield "state LISTEN;", lambda: socket.create_server(("127.0.0.1", 0))
    yield "no TCP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    yield "no TCP socket", lambda: socket.socketpair()[0]
    yield "Multipath TCP", multipath


@pytest.mark.parametrize("reason, make", list(unmovable()))
def test_refused_with_a_reason(reason: str, make: Callable[[], socket.socket]) -> None:
    """What cannot be moved is said before it is touched."""

    def work() -> None:
        with make() as connection, pytest.raises(Refused, match=reason):
            tcp.check(connection)

    inside(work)


def test_an_address_that_is_not_here() -> None:
    """The namespace lacks the service address: an error, and the old socket goes on."""

    def work() -> None:
        client, server = pair()
        tcp.freeze(server)
        state = tcp.dump(server)
        errors: list[OSError] = []

        def elsewhere() -> None:
            namespace.unshare()
            try:
                tcp.restore(state)
            except OSError as error:
                errors.append(error)

        namespace.in_thread(elsewhere)
        assert [error.strerror for error in errors] == ["Network is unreachable"]
        tcp.revive(server)
        server.sendall(b"x")
        assert read(client, 1) == b"x"
        client.close()
        server.close()

    inside(work)


def test_checksums() -> None:
    """Segments as they are made and as they are mended are right: the sum over all of them is 0 (RFC 1071)."""
    from ipaddress import ip_address

    for a, b in (("192.0.2.1", "198.51.100.7"), ("2001:db8::1", "2001:db8::2")):
        for data in (b"", b"x", b"\xff" * 1001, bytes(300)):
            source, target = ip_address(a), ip_address(b)
            packet = segment(source, 80, target, 40000, 2**32 + 5, 7, 0x10, 500, data)
            start = 20 if source.version == 4 else 40
            pseudo = source.packed + target.packed + struct.pack("!IHH", len(packet) - start, 0, 6)
            assert checksum(pseudo + packet[start:]) in (0, 0xFFFF)
            spoiled = bytearray(packet)
            spoiled[start + 16] ^= 0x5A
            assert with_checksum(bytes(spoiled)) == (packet, target)
