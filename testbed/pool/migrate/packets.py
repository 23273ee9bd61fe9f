"""Single TCP segments that no socket sends: the other side's FIN once more, and a question that must be answered."""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from testbed.pool.migrate.kernel import FIN_RECEIVED
from testbed.pool.migrate.state import MASK, TcpState

_FIN, _ACK = 0x01, 0x10
_TCP = socket.IPPROTO_TCP


class Injector:
    """Sends segments from the namespace of the thread that makes it."""

    def __init__(self) -> None:
        self._sockets = {
            version: socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
            for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6))
        }

    def close(self) -> None:
        """Close the sockets."""
        for item in self._sockets.values():
            item.close()

    def finish(self, state: TcpState) -> None:
        """Give a restored connection the FIN that its other side sent before the move."""
        if state.state in FIN_RECEIVED:
            window = state.window[1] >> state.send_scale
            self._send(state.peer, state.local, state.receive_seq, state.unacknowledged, _FIN | _ACK, window)

    def ask(self, state: TcpState) -> None:
        """Make the other side say what it has received.

        One byte that it has had already (RFC 9293, 3.8.4). A segment without data, such as the kernel's window
        probe, is answered at most twice a second (``tcp_invalid_ratelimit``); one with data always.
        """
        window = state.window[3] >> state.receive_scale
        self._send(state.local, state.peer, state.unacknowledged - 1, state.receive_seq, _ACK, window, b"\0")

    def deliver(self, packet: bytes) -> None:
        """Give a packet that was captured to this namespace, as if it came now."""
        whole, target = with_checksum(packet)
        self._sockets[target.version].sendto(whole, (str(target), 0))

    def _send(
        self,
        source: tuple[object, ...],
        target: tuple[object, ...],
        sequence: int,
        acknowledged: int,
        flags: int,
        window: int,
        data: bytes = b"",
    ) -> None:
        a, b = plain_address(str(source[0])), plain_address(str(target[0]))
        packet = segment(a, int(str(source[1])), b, int(str(target[1])), sequence, acknowledged, flags, window, data)
        self._sockets[b.version].sendto(packet, (str(b), 0))


def segment(
    source: IPv4Address | IPv6Address,
    source_port: int,
    target: IPv4Address | IPv6Address,
    target_port: int,
    sequence: int,
    acknowledged: int,
    flags: int,
    window: int,
    data: bytes = b"",
) -> bytes:
    """An IP packet with one TCP segment; ``window`` as it stands in the header."""
    header = [
        source_port,
        target_port,
        sequence & MASK,
        acknowledged & MASK,
        5 << 4,
        flags,
        min(window, 0xFFFF),
        0,
        0,
    ]
    length = 20 + len(data)
    pseudo = source.packed + target.packed + struct.pack("!IHH", length, 0, _TCP)
    header[7] = checksum(pseudo + struct.pack("!HHIIBBHHH", *header) + data)
    body = struct.pack("!HHIIBBHHH", *header) + data
    if source.version == 6:
        return struct.pack("!IHBB", 6 << 28, length, _TCP, 64) + source.packed + target.packed + body
    # identification and header checksum 0: the kernel fills them in
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, _TCP, 0) + source.packed + target.packed + body


def with_checksum(packet: bytes) -> tuple[bytes, IPv4Address | IPv6Address]:
    """The packet with a right TCP checksum, and where it goes to.

    A sender on the same machine leaves the checksum to a network card that there is not.
    """
    target: IPv4Address | IPv6Address
    if packet[0] >> 4 == 4:
        start, addresses, target = (packet[0] & 15) * 4, packet[12:20], IPv4Address(packet[16:20])
    else:
        start, addresses, target = 40, packet[8:40], IPv6Address(packet[24:40])
    body = bytearray(packet[start:])
    body[16:18] = b"\0\0"
    pseudo = addresses + struct.pack("!IHH", len(body), 0, _TCP)
    body[16:18] = checksum(pseudo + bytes(body)).to_bytes(2, "big")
    return packet[:start] + bytes(body), target


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071): a sum in ones' complement is a remainder by 0xFFFF."""
    if len(data) % 2:
        data += b"\0"
    return 0xFFFF - (int.from_bytes(data, "big") % 0xFFFF)


@lru_cache(4096)
def plain_address(text: str) -> IPv4Address | IPv6Address:
    """The address in a socket's name; of an IPv4 address in IPv6 form the IPv4 one."""
    if ":" not in text:
        return IPv4Address(text)
    address = IPv6Address(text.partition("%")[0])
    return address.ipv4_mapped or address
