"""The kernel's table of tracked connections, of one namespace: list them by mark, and change marks, many at a time.

Protocol: nfnetlink, subsystem ctnetlink (``linux/netfilter/nfnetlink_conntrack.h``). A batch of 500 changes takes a few
milliseconds; a program such as ``conntrack`` takes that for one.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from testbed.net.netlink import attributes
from testbed.plan.types import Address

_NETLINK_NETFILTER = 12
_SOL_NETLINK, _CAP_ACK = 270, 10
_NEW, _GET = 0x100, 0x101
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHIIBBH")  # nlmsghdr and nfgenmsg
_TUPLE_ORIGINAL, _PROTOINFO, _MARK, _MARK_MASK = 1, 4, 8, 21
_NESTED = 0x8000
_CHUNK = 64
"""Changes in one send. Their answers must fit into the receive buffer."""
_V4 = struct.Struct("=HHHH HH4s HH4s HH HHB3x HH2s2x HH2s2x HHI")
_V6 = struct.Struct("=HHHH HH16s HH16s HH HHB3x HH2s2x HH2s2x HHI")

SYN_SENT, SYN_RECEIVED, ESTABLISHED, FIN_WAIT, CLOSE_WAIT, LAST_ACK, TIME_WAIT, CLOSE = range(1, 9)
"""States of a tracked TCP connection (``enum tcp_conntrack``); not those of a socket."""


@dataclass(frozen=True, slots=True)
class FourTuple:
    """A TCP connection, named from the side of who opened it."""

    client: Address
    client_port: int
    service: Address
    port: int

    def __str__(self) -> str:
        def end(address: Address, port: int) -> str:
            return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"

        return f"{end(self.client, self.client_port)} > {end(self.service, self.port)}"


@dataclass(frozen=True, slots=True)
class Tracked:
    """An entry of the table."""

    tuple: FourTuple
    mark: int
    state: int
    """One of the states above; 0 if it has none."""


class Conntrack:
    """A socket to the table of the namespace whose thread opens it; it may be used from anywhere, by one at a time."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def set_marks(self, connections: Sequence[FourTuple], mark: int) -> dict[int, int]:
        """Give connections a mark. Those that could not be changed, by their place in the list: the error number,
        ENOENT if the table has no such connection."""
        failed: dict[int, int] = {}
        for start in range(0, len(connections), _CHUNK):
            chunk = connections[start : start + _CHUNK]
            first, last = self._sequence + 1, self._sequence + len(chunk)
            self._sequence = last
            messages = [_change(one, mark, number, number == last) for number, one in enumerate(chunk, first)]
            self._socket.send(b"".join(messages))
            sequence = 0
            while sequence != last:  # errors in the order of the changes, and an answer to the last in any case
                data = self._socket.recv(4096)
                _, kind, _, sequence, _ = struct.unpack_from("=IHHII", data)
                code = struct.unpack_from("=i", data, 16)[0]
                if kind == _ERROR and code:
                    failed[start + sequence - first] = -code
        return failed

    def by_mark(self, mark: int) -> list[Tracked]:
        """All TCP connections that have this mark, of both families.

        Takes about 10 ms however few they are: the kernel looks through the table of the whole machine.
        """
        return list(self._list(mark))

    def _list(self, mark: int) -> Iterator[Tracked]:
        self._sequence += 1
        wanted = struct.pack("=HH", 8, _MARK) + mark.to_bytes(4, "big")
        wanted += struct.pack("=HHI", 8, _MARK_MASK, 0xFFFFFFFF)
        head = _HEADER.pack(_HEADER.size + len(wanted), _GET, _REQUEST | _DUMP, self._sequence, 0, 0, 0, 0)
        self._socket.send(head + wanted)
        while True:
            data = self._socket.recv(1 << 20)
            offset = 0
            while offset < len(data):
                length, kind, _, _, _ = struct.unpack_from("=IHHII", data, offset)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", data, offset + 16)[0]
                    raise OSError(number, "the table of connections cannot be read")
                entry = _entry(data[offset + 20 : offset + length])
                if entry is not None and entry.mark == mark:
                    yield entry
                offset += (length + 3) & ~3


def _change(connection: FourTuple, mark: int, sequence: int, answer: bool) -> bytes:
    if connection.client.version == 4:
        layout, family, source, destination, width = _V4, socket.AF_INET, 1, 2, 8
    else:
        layout, family, source, destination, width = _V6, socket.AF_INET6, 3, 4, 20
    ip, proto = 4 + 2 * width, 4 + 3 * 8
    body = layout.pack(
        *(4 + ip + proto, _TUPLE_ORIGINAL | _NESTED),
        *(ip, 1 | _NESTED),
        *(width, source, connection.client.packed),
        *(width, destination, connection.service.packed),
        *(proto, 2 | _NESTED),
        *(5, 1, socket.IPPROTO_TCP),
        *(6, 2, connection.client_port.to_bytes(2, "big")),
        *(6, 3, connection.port.to_bytes(2, "big")),
        *(8, _MARK, socket.htonl(mark)),
    )
    flags = _REQUEST | _ACK if answer else _REQUEST
    return _HEADER.pack(_HEADER.size + len(body), _NEW, flags, sequence, 0, family, 0, 0) + body


def _entry(body: bytes) -> Tracked | None:
    """The entry in a message's attributes; None of what is not TCP."""
    found = attributes(body, 0)
    original = attributes(found[_TUPLE_ORIGINAL], 0)
    addresses, ports = attributes(original[1], 0), attributes(original[2], 0)
    if ports[1][0] != socket.IPPROTO_TCP:
        return None
    client, service = (_address(addresses, v4, v6) for v4, v6 in ((1, 3), (2, 4)))
    port_of = (int.from_bytes(ports[kind][:2], "big") for kind in (2, 3))
    state = 0
    if _PROTOINFO in found and 1 in (info := attributes(found[_PROTOINFO], 0)):
        state = attributes(info[1], 0).get(1, b"\0")[0]
    mark = int.from_bytes(found.get(_MARK, b""), "big")
    return Tracked(FourTuple(client, next(port_of), service, next(port_of)), mark, state)


def _address(found: dict[int, bytes], v4: int, v6: int) -> IPv4Address | IPv6Address:
    return ip_address(found[v4] if v4 in found else found[v6])
