"""Which packets to the service are kept while a connection moves: real ones, on loopback in an own namespace."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from ipaddress import ip_address

import pytest
from tcp_pairs import inside

from testbed.net.conntrack import FourTuple
from testbed.pool.migrate.capture import Capture
from testbed.pool.migrate.packets import Injector, segment

pytestmark = pytest.mark.root
SYN, FIN, ACK = 0x02, 0x01, 0x10


@pytest.mark.parametrize("service, other", [("127.0.0.1", "127.0.0.2"), ("::1", "::ffff:127.0.0.2")], ids=["4", "6"])
@inside
def test_what_is_kept(service: str, other: str) -> None:
    """What carries data or a FIN to the service, with options or without; nothing else, and no part of a packet."""
    here, there = ip_address(service), ip_address(other)
    with closing(Capture(here)) as capture, closing(Injector()) as injector:
        for port, flags, data in ((1, ACK, b"data"), (2, ACK, b""), (3, FIN | ACK, b""), (4, SYN, b""), (5, ACK, b"x")):
            injector.deliver(segment(here, port, here, 80, port, 0, flags, 100, data))
        injector.deliver(with_options(segment(here, 6, here, 80, 6, 0, ACK, 100)))
        injector.deliver(with_options(segment(here, 7, here, 80, 7, 0, ACK, 100, b"data")))
        if here.version == 4:
            injector.deliver(segment(here, 8, there, 80, 8, 0, ACK, 100, b"elsewhere"))
            fragment = bytearray(segment(here, 9, here, 80, 9, 0, ACK, 100, b"12345678"))
            fragment[6] |= 0x20  # more follow
            injector.deliver(bytes(fragment))
        with socket.socket(socket.AF_INET if here.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"datagram", (service, 80))
        injector.deliver(segment(here, 10, here, 80, 10, 0, ACK, 100, b"the last"))
        kept: dict[int, bytes] = {}
        while 10 not in kept:
            for name, packet in capture.packets():
                assert name == FourTuple(here, name.client_port, here, 80)
                kept[name.client_port] = packet
    assert sorted(kept) == [1, 3, 5, 7, 10]
    assert kept[7].endswith(b"data")


def with_options(packet: bytes) -> bytes:
    """The segment with twelve bytes of options (no operation) after its header."""
    start = 20 if packet[0] >> 4 == 4 else 40
    changed = bytearray(packet[: start + 20] + b"\x01" * 12 + packet[start + 20 :])
    changed[start + 12] = 8 << 4
    where = 2 if start == 20 else 4
    (length,) = struct.unpack_from("!H", changed, where)
    struct.pack_into("!H", changed, where, length + 12)
    return bytes(changed)
