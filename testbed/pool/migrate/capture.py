"""What clients send while their connection moves: kept, and given to the connection once it is at its new place.

A packet that reaches the frozen socket is dropped there. Without this the client would repeat it after 0.2 s at the
earliest. Packets without data need not be kept: the other side is asked what it has received (``packets.ask``).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.net.conntrack import FourTuple
from testbed.plan.types import Address
from testbed.pool.migrate.kernel import SO_RCVBUFFORCE, Filter, Instruction

_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_TCP = 6
_FIN = 1
_ROOM = 16 << 20
"""Bytes of packets, as the kernel counts them; what does not fit is lost, and the client repeats it."""

_FRAGMENT = 0x3FFF  # more of them follow, or it does not begin at 0
_HEADER6 = 40

# codes of classic BPF (linux/filter.h)
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD, _LOAD_BYTE_X = 0x30, 0x28, 0x20, 0x50
_HEADER_LENGTH, _SET_X, _TO_X = 0xB1, 0x01, 0x07
_AND, _SHIFT, _ADD, _ADD_X, _SUBTRACT_X = 0x54, 0x74, 0x04, 0x0C, 0x1C
_EQUAL, _BITS, _RETURN = 0x15, 0x45, 0x06
_ACCEPT, _DROP = "accept", "drop"


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction; a comparison leads to one of the ends, or on."""

    code: int
    constant: int
    yes: str = ""
    no: str = ""


class Capture:
    """Sees what arrives for ``service`` in the namespace of the thread that makes it, from then on."""

    def __init__(self, service: Address) -> None:
        protocol = _ETH_P_IP if service.version == 4 else _ETH_P_IPV6
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(protocol))
        try:
            Filter(_program(service)).attach(self._socket)
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _ROOM // 2)
            with suppress(BlockingIOError):
                while True:  # what came before the filter was there
                    self._socket.recv(1)
        except BaseException:
            self._socket.close()
            raise

    def packets(self) -> Iterator[tuple[FourTuple, bytes]]:
        """What has come since the last call."""
        while True:
            try:
                packet, origin = self._socket.recvfrom(65536)
            except (BlockingIOError, InterruptedError):
                return
            if origin[2] == socket.PACKET_HOST:
                yield _tuple(packet), packet

    def of(self, connections: Collection[FourTuple]) -> list[bytes]:
        """Those of these connections that have come since the last call; others are forgotten."""
        return [packet for name, packet in self.packets() if name in connections]

    def close(self) -> None:
        """Stop. The kernel takes some milliseconds for it."""
        self._socket.close()


def _tuple(packet: bytes) -> FourTuple:
    if packet[0] >> 4 == 4:
        start = (packet[0] & 15) * 4
        source, target = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        ports = struct.unpack_from("!HH", packet, start)
        return FourTuple(source, ports[0], target, ports[1])
    ports = struct.unpack_from("!HH", packet, 40)
    return FourTuple(IPv6Address(packet[8:24]), ports[0], IPv6Address(packet[24:40]), ports[1])


def _program(service: Address) -> list[Instruction]:
    """TCP to ``service`` that carries data or a FIN, and is no fragment; offsets count from the IP header.

    IPv6 without extension headers, and so without fragments.
    """
    four = service.version == 4
    words = struct.unpack(f"!{len(service.packed) // 4}I", service.packed)
    steps: list[_Step] = [_Step(_LOAD_BYTE, 9 if four else 6), _Step(_EQUAL, _TCP, no=_DROP)]
    for place, word in enumerate(words):
        steps += [_Step(_LOAD_WORD, (16 if four else 24) + 4 * place), _Step(_EQUAL, word, no=_DROP)]
    if four:
        steps += [_Step(_LOAD_HALF, 6), _Step(_BITS, _FRAGMENT, yes=_DROP)]
    steps += [
        _Step(_HEADER_LENGTH, 0) if four else _Step(_SET_X, _HEADER6),
        _Step(_LOAD_BYTE_X, 13),
        _Step(_BITS, _FIN, yes=_ACCEPT),
        _Step(_LOAD_BYTE_X, 12),
        _Step(_AND, 0xF0),
        _Step(_SHIFT, 2),  # length of the TCP header, in bytes
        _Step(_ADD_X, 0),
        _Step(_TO_X, 0),  # and of both headers
        _Step(_LOAD_HALF, 2 if four else 4),
        _Step(_ADD, 0 if four else _HEADER6),  # length of the packet
        _Step(_SUBTRACT_X, 0),
        _Step(_EQUAL, 0, yes=_DROP),
    ]
    return _assemble(steps)


def _assemble(steps: Sequence[_Step]) -> list[Instruction]:
    """The steps, and after them the two ways out: the whole packet, and nothing of it."""
    ends = {_ACCEPT: len(steps), _DROP: len(steps) + 1}

    def jump(here: int, target: str) -> int:
        return ends[target] - here - 1 if target else 0

    program = [(step.code, jump(here, step.yes), jump(here, step.no), step.constant) for here, step in enumerate(steps)]
    return [*program, (_RETURN, 0, 0, 0xFFFF), (_RETURN, 0, 0, 0)]
