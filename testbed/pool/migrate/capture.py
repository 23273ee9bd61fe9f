"""What clients send while their connection moves: kept, and given to the connection once it is at its new place.

A packet that reaches the frozen socket is dropped there. Without this the client would repeat it after 0.2 s at the
earliest. Packets without data need not be kept: the other side is asked what it has received (``packets.ask``).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

from testbed.net.conntrack import FourTuple
from testbed.plan.types import Address
from testbed.pool.migrate.kernel import SO_RCVBUFFORCE, Filter, Instruction

_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_TCP = 6
_FIN = 1
_ROOM = 16 << 20
"""Bytes of packets, as the kernel counts them; what does not fit is lost, and the client repeats it."""

_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD = 0x30, 0x28, 0x20
_LOAD_BYTE_X, _HEADER_LENGTH = 0x50, 0xB1
_AND, _SHIFT, _ADD_X, _SUBTRACT_X = 0x54, 0x74, 0x0C, 0x1C
_TO_X, _EQUAL, _BITS, _RETURN = 0x07, 0x15, 0x45, 0x06


class Capture:
    """Sees what arrives for ``service`` in the namespace of the thread that makes it, from then on."""

    def __init__(self, service: Address) -> None:
        protocol = _ETH_P_IP if service.version == 4 else _ETH_P_IPV6
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(protocol))
        try:
            program = _program4(service) if isinstance(service, IPv4Address) else _program6(service)
            Filter(program).attach(self._socket)
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


def _program4(service: IPv4Address) -> list[Instruction]:
    """TCP to ``service`` that carries data or a FIN, and is no fragment; offsets count from the IP header."""
    return [
        (_LOAD_BYTE, 0, 0, 9),
        (_EQUAL, 0, 14, _TCP),
        (_LOAD_WORD, 0, 0, 16),
        (_EQUAL, 0, 12, int(service)),
        (_HEADER_LENGTH, 0, 0, 0),
        (_LOAD_BYTE_X, 0, 0, 13),
        (_BITS, 8, 0, _FIN),
        (_LOAD_BYTE_X, 0, 0, 12),
        (_AND, 0, 0, 0xF0),
        (_SHIFT, 0, 0, 2),  # length of the TCP header, in bytes
        (_ADD_X, 0, 0, 0),
        (_TO_X, 0, 0, 0),
        (_LOAD_HALF, 0, 0, 2),
        (_SUBTRACT_X, 0, 0, 0),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, 0xFFFF),
        (_RETURN, 0, 0, 0),
    ]


def _program6(service: IPv6Address) -> list[Instruction]:
    """The same for IPv6, without extension headers."""
    words = struct.unpack("!4I", service.packed)
    program: list[Instruction] = [(_LOAD_BYTE, 0, 0, 6), (_EQUAL, 0, 18, _TCP)]
    for place, word in enumerate(words):
        program += [(_LOAD_WORD, 0, 0, 24 + 4 * place), (_EQUAL, 0, 16 - 2 * place, word)]
    program += [
        (_LOAD_BYTE, 0, 0, 53),
        (_BITS, 7, 0, _FIN),
        (_LOAD_BYTE, 0, 0, 52),
        (_AND, 0, 0, 0xF0),
        (_SHIFT, 0, 0, 2),
        (_TO_X, 0, 0, 0),
        (_LOAD_HALF, 0, 0, 4),
        (_SUBTRACT_X, 0, 0, 0),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, 0xFFFF),
        (_RETURN, 0, 0, 0),
    ]
    return program
