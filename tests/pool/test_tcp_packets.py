"""Segments that are made or mended for a moved connection."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from testbed.pool.migrate.packets import checksum, segment, with_checksum


@pytest.mark.parametrize("data", [b"", b"x", b"\xff" * 1001, bytes(300)], ids=len)
@pytest.mark.parametrize("ends", [("192.0.2.1", "198.51.100.7"), ("2001:db8::1", "2001:db8::2")], ids=["4", "6"])
def test_checksums(ends: tuple[str, str], data: bytes) -> None:
    """Segments as they are made and as they are mended are right: the sum over all of them is 0 (RFC 1071)."""
    source, target = map(ip_address, ends)
    packet = segment(source, 80, target, 40000, 2**32 + 5, 7, 0x10, 500, data)
    start = 20 if source.version == 4 else 40
    pseudo = source.packed + target.packed + struct.pack("!IHH", len(packet) - start, 0, 6)
    assert checksum(pseudo + packet[start:]) in (0, 0xFFFF)
    spoiled = bytearray(packet)
    spoiled[start + 16] ^= 0x5A
    assert with_checksum(bytes(spoiled)) == (packet, target)
