"""Which node reaches which: echo requests from inside every node, to all others at once."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from testbed.net import namespace

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Pair = tuple[str, str, str]
"""A node, another one, and an address of that."""
_AGAIN = 0.25
"""Seconds after which what has not been answered is asked again; a lossy link needs several."""
_HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence: RFC 792, RFC 4443
_REQUEST = {4: 8, 6: 128}


def reached(lab: Lab, pairs: Sequence[Pair], timeout: float) -> frozenset[Pair]:
    """The pairs of which an echo request was answered within ``timeout`` seconds; returns once all are."""
    by_source: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_source.setdefault(pair[0], []).append(pair)
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda source: _from(lab, source, by_source[source], timeout), by_source)
        return frozenset(pair for found in results for pair in found)


def _from(lab: Lab, source: str, pairs: list[Pair], timeout: float) -> set[Pair]:
    def ask() -> set[Pair]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as four:
            sockets = {4: four}
            if any(":" in pair[2] for pair in pairs):
                sockets[6] = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6)
            try:
                return _rounds(sockets, pairs, timeout)
            finally:
                for opened in sockets.values():
                    opened.close()

    return namespace.inside(lab.namespace(source), ask)


def _rounds(sockets: dict[int, socket.socket], pairs: list[Pair], timeout: float) -> set[Pair]:
    for opened in sockets.values():
        opened.setblocking(False)
    missing = dict(enumerate(pairs))
    deadline = time.monotonic() + timeout
    while missing and time.monotonic() < deadline:
        for number, (_, _, address) in missing.items():
            version = 6 if ":" in address else 4
            # The kernel fills in identifier and checksum, and hands us answers to this socket alone.
            try:
                sockets[version].sendto(_HEADER.pack(_REQUEST[version], 0, 0, 0, number), (address, 0))
            except OSError:
                continue  # no route, or filtered: as good as no answer
        again = time.monotonic() + _AGAIN
        while missing and (left := again - time.monotonic()) > 0:
            for opened in select.select(list(sockets.values()), [], [], left)[0]:
                try:
                    data = opened.recv(2048)
                except OSError:
                    continue  # an ICMP error, told here
                missing.pop(_HEADER.unpack_from(data)[4], None)
    return set(pairs) - set(missing.values())
