"""Many rtnetlink requests in one system call, each acknowledged by name; and dumps, decoded as far as needed.

Messages are encoded by pyroute2's classes. Its ``IPRoute`` costs 0.3 to 1 ms a request and 0.8 ms a namespace, which
is most of the time that a lab of hundreds of nodes takes; a batch on a plain socket costs a tenth.
Protocol: RFC 3549 and rtnetlink(7).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import ApplyError
from testbed.net import namespace

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_CREATE_EXCL, _CREATE_REPLACE = 0x400 | 0x200, 0x400 | 0x100
_SOL_NETLINK, _CAP_ACK = 270, 10
_CHUNK = 64
"""Requests in one send. Their acknowledgements (36 bytes each, plus overhead) must fit into the receive buffer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One change: what it is, in the user's words, and its encoded message."""

    what: str
    data: bytearray


def encode(what: str, message: Any, kind: int, *, create: bool = False, replace: bool = False) -> Request:
    """Encode a pyroute2 message as a request of type ``kind`` (an ``RTM_`` number); ``create``: must not exist yet;
    ``replace``: takes the place of what there is."""
    message["header"]["type"] = kind
    message["header"]["flags"] = _REQUEST | _ACK | (_CREATE_EXCL if create else _CREATE_REPLACE if replace else 0)
    message.encode()
    return Request(what, bytearray(message.data))


T = TypeVar("T")


class Netlink:
    """A netlink socket. It belongs for ever to the namespace of the thread that opens it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)  # acknowledge without echoing the request
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        """Close the socket, and with it this side's hold on the namespace."""
        self._socket.close()

    def apply(self, where: str, requests: list[Request]) -> None:
        """Send all requests in order and wait for every acknowledgement.

        Raises ApplyError naming the first request that the kernel refused and why; those after it in the same chunk
        may have been applied.
        """
        for start in range(0, len(requests), _CHUNK):
            chunk = requests[start : start + _CHUNK]
            first = self._sequence + 1
            for request in chunk:
                self._sequence += 1
                struct.pack_into("=I", request.data, 8, self._sequence)
            self._socket.send(b"".join(request.data for request in chunk))
            failed: tuple[Request, int] | None = None
            for _ in chunk:
                kind, sequence, payload = self._acknowledgement()
                if kind != _ERROR:
                    continue
                code = struct.unpack_from("=i", payload)[0]
                if code and failed is None:
                    failed = chunk[sequence - first], -code
            if failed:
                request, number = failed
                reason = os.strerror(number)
                raise ApplyError(f"the kernel refused {request.what}: {reason}", where=where, remedy=_remedy(number))

    def _acknowledgement(self) -> tuple[int, int, bytes]:
        data = self._socket.recv(65536)
        _, kind, _, sequence, _ = _HEADER.unpack_from(data)
        return kind, sequence, data[_HEADER.size :]

    def get(self, kind: int, body: bytes) -> bytes:
        """The payload of the answer to a request of type ``kind`` about one thing. OSError if the kernel refuses."""
        self._sequence += 1
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST, self._sequence, 0) + body)
        answer, _, payload = self._acknowledgement()
        if answer == _ERROR:
            number = -struct.unpack_from("=i", payload)[0]
            raise OSError(number, f"netlink request {kind}: {os.strerror(number)}")
        return payload

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """The payloads of all answers to a dump request of type ``kind`` with family header ``body``."""
        self._sequence += 1
        head = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, self._sequence, 0)
        self._socket.send(head + body)
        while True:
            data = self._socket.recv(1 << 20)
            offset = 0
            while offset < len(data):
                length, answer, _, _, _ = _HEADER.unpack_from(data, offset)
                if answer == _DONE:
                    return
                payload = data[offset + _HEADER.size : offset + length]
                if answer == _ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, f"netlink dump {kind}: {os.strerror(number)}")
                yield payload
                offset += (length + 3) & ~3


def attributes(data: bytes, offset: int) -> dict[int, bytes]:
    """The attributes that follow a message's fixed header of ``offset`` bytes, by type number."""
    found: dict[int, bytes] = {}
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind & 0x3FFF] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def _remedy(number: int) -> str:
    remedies = {
        errno.EPERM: "run as root",
        errno.EOPNOTSUPP: "this kernel lacks the feature; `testbed doctor` shows what it has",
        errno.EEXIST: "something else holds that name or prefix; `testbed down` the lab that does",
        errno.ENOBUFS: "the kernel is out of buffers or neighbour entries; use fewer nodes",
    }
    return remedies.get(number, "")


def in_namespace(where: Path, work: Callable[[Netlink], T]) -> T:
    """Run ``work`` with a netlink socket inside a namespace."""

    def run() -> T:
        with closing(Netlink()) as netlink:
            return work(netlink)

    return namespace.inside(where, run)
