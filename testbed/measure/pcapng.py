"""pcapng, the capture format of Wireshark: as much of it as a capture of Ethernet frames needs, written and read.

Format: draft-ietf-opsawg-pcapng. A file is a row of blocks; each says its length twice, so a file that was cut ends at
a block that is not whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SECTION, INTERFACE, PACKET, STATISTICS = 0x0A0D0D0A, 1, 6, 5
_MAGIC = 0x1A2B3C4D
_ETHERNET = 1  # as link type
_END, _COMMENT = 0, 1
_SECTION_OS, _SECTION_PROGRAM = 3, 4
_IF_NAME, _IF_DESCRIPTION, _IF_MAC, _IF_RESOLUTION, _IF_FILTER = 2, 3, 6, 9, 11
_NANOSECONDS = 9
_PACKET_FLAGS = 2
_STARTED, _ENDED, _RECEIVED, _DROPPED, _DELIVERED = 2, 3, 4, 7, 8
_OPTION = struct.Struct("=HH")
_U32 = 0xFFFFFFFF
_LENGTH = struct.Struct("=I")
_PACKET_HEAD = struct.Struct("=IIIIIII")
_FLAGS = {
    outgoing: struct.pack("=HHIHH", _PACKET_FLAGS, 4, 2 if outgoing else 1, _END, 0) for outgoing in (False, True)
}


@dataclass(frozen=True, slots=True)
class Interface:
    """What a file says about an interface."""

    name: str
    """Such as ``a:eth0``."""
    description: str = ""
    mac: str = ""
    snaplen: int = 262144
    filter: str = ""
    """The expression that packets had to match."""


def section(program: str, system: str, comment: str = "") -> bytes:
    """The block that a file begins with."""
    options = _text(_SECTION_OS, system) + _text(_SECTION_PROGRAM, program) + _text(_COMMENT, comment)
    return _block(SECTION, struct.pack("=IHHq", _MAGIC, 1, 0, -1) + _closed(options))


def interface(described: Interface) -> bytes:
    """The block of one interface; its number is its place among those of the file."""
    options = _text(_IF_NAME, described.name) + _text(_IF_DESCRIPTION, described.description)
    if described.mac:
        options += _option(_IF_MAC, bytes.fromhex(described.mac.replace(":", "")))
    options += _option(_IF_RESOLUTION, bytes([_NANOSECONDS]))
    if described.filter:
        options += _option(_IF_FILTER, b"\0" + described.filter.encode())
    return _block(INTERFACE, struct.pack("=HHI", _ETHERNET, 0, described.snaplen) + _closed(options))


def packet(number: int, time_ns: int, data: bytes | memoryview, length: int, *, outgoing: bool) -> bytes:
    """One frame on interface ``number``: what was kept of it, and how long it was. ``time_ns``: since the epoch."""
    kept = len(data)
    padding = -kept % 4
    total = _PACKET_HEAD.size + kept + padding + 12 + 4
    head = _PACKET_HEAD.pack(PACKET, total, number, time_ns >> 32, time_ns & _U32, kept, length)
    return b"".join((head, data, b"\0\0\0"[:padding], _FLAGS[outgoing], _LENGTH.pack(total)))


def statistics(number: int, started_ns: int, ended_ns: int, received: int, dropped: int, delivered: int) -> bytes:
    """How many packets interface ``number`` had, how many of them the kernel dropped, and how many are in the file."""
    options = b"".join(
        (
            _option(_STARTED, _time(started_ns)),
            _option(_ENDED, _time(ended_ns)),
            _option(_RECEIVED, struct.pack("=Q", received)),
            _option(_DROPPED, struct.pack("=Q", dropped)),
            _option(_DELIVERED, struct.pack("=Q", delivered)),
        )
    )
    return _block(STATISTICS, struct.pack("=I", number) + _time(ended_ns) + _closed(options))


def _time(ns: int) -> bytes:
    return struct.pack("=II", ns >> 32, ns & _U32)


def _option(code: int, value: bytes) -> bytes:
    return _OPTION.pack(code, len(value)) + value + bytes(-len(value) % 4)


def _text(code: int, text: str) -> bytes:
    return _option(code, text.encode()[:65535]) if text else b""


def _closed(options: bytes) -> bytes:
    return options + _OPTION.pack(_END, 0) if options else b""


def _block(kind: int, body: bytes) -> bytes:
    total = len(body) + 12
    return struct.pack("=II", kind, total) + body + _LENGTH.pack(total)


@dataclass(frozen=True, slots=True)
class Packet:
    """A frame as read from a file."""

    interface: int
    time_ns: int
    data: bytes
    length: int
    """Before it was cut to the snap length."""
    outgoing: bool


@dataclass
class Content:
    """What a file holds."""

    interfaces: list[Interface] = field(default_factory=list)
    packets: list[Packet] = field(default_factory=list)
    received: dict[int, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    comment: str = ""
    whole: bool = True
    """False for a file that was cut within a block."""


def read(path: Path) -> Content:
    """The content of a file of this machine's byte order, also of one that goes on or was cut. ValueError for another
    kind of file."""
    data, found = path.read_bytes(), Content()
    offset = 0
    while offset < len(data):
        if len(data) - offset < 12:
            found.whole = False
            break
        kind, total = struct.unpack_from("=II", data, offset)
        if offset == 0 and (kind != SECTION or struct.unpack_from("=I", data, 8)[0] != _MAGIC):
            raise ValueError(f"{path} is not a pcapng file of this machine's byte order")
        if total < 12 or total % 4 or offset + total > len(data):
            found.whole = False
            break
        if struct.unpack_from("=I", data, offset + total - 4)[0] != total:
            raise ValueError(f"{path}: the two lengths of the block at {offset} differ")
        _take(found, kind, data[offset + 8 : offset + total - 4])
        offset += total
    return found


def _take(found: Content, kind: int, body: bytes) -> None:
    if kind == SECTION:
        found.comment = dict(_options(body[16:])).get(_COMMENT, b"").decode()
    elif kind == INTERFACE:
        found.interfaces.append(_interface(struct.unpack_from("=HHI", body)[2], dict(_options(body[8:]))))
    elif kind == PACKET:
        number, high, low, kept, length = struct.unpack_from("=IIIII", body)
        options = dict(_options(body[20 + kept + -kept % 4 :]))
        flags = struct.unpack("=I", options.get(_PACKET_FLAGS, bytes(4)))[0]
        found.packets.append(Packet(number, high << 32 | low, body[20 : 20 + kept], length, flags & 3 == 2))
    elif kind == STATISTICS:
        number, options = struct.unpack_from("=I", body)[0], dict(_options(body[12:]))
        found.received[number] = struct.unpack("=Q", options.get(_RECEIVED, bytes(8)))[0]
        found.dropped[number] = struct.unpack("=Q", options.get(_DROPPED, bytes(8)))[0]


def _interface(snaplen: int, options: Mapping[int, bytes]) -> Interface:
    return Interface(
        options.get(_IF_NAME, b"").decode(),
        options.get(_IF_DESCRIPTION, b"").decode(),
        options.get(_IF_MAC, b"").hex(":"),
        snaplen,
        options.get(_IF_FILTER, b"")[1:].decode(),
    )


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        code, length = _OPTION.unpack_from(data, offset)
        if code == _END:
            return
        yield code, data[offset + 4 : offset + 4 + length]
        offset += 4 + length + -length % 4
