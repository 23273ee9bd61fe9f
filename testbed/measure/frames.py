"""Ethernet frames of our own over one direction of one link, with their times and counts.

They need no address, route or port, so any link can be tried, also one to a switch, and what is seen is that link
alone. Their type is the one that IEEE 802 leaves for experiments; nobody else answers to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from pathlib import Path
from typing import Self

from testbed.measure import bpf
from testbed.measure.probes.base import ANCILLARY, SO_TIMESTAMPNS
from testbed.net.namespace import inside
from testbed.plan.types import End, Impairment, Link

TYPE = 0x88B5
LEAST_FRAME = 60
"""Bytes; with the checksum that is the shortest that Ethernet has."""
_ETH_P_ALL, _SO_SNDBUFFORCE = 3, 32
_STAMP = struct.Struct("!8sIQ")
_TIMESPEC = struct.Struct("=qq")
_BUFFER = 32 << 20
_SHARP, _READINGS = 0.001, 5
_OURS: bpf.Program = [(0x28, 0, 0, 12), (0x15, 0, 1, TYPE), (0x06, 0, 0, 262144), (0x06, 0, 0, 0)]
"""Passes frames of our type."""
_NONE: bpf.Program = [(0x06, 0, 0, 0)]


class Direction:
    """One direction of a link: a sender at one end and a receiver at the other. A context manager."""

    def __init__(self, link: Link, source: str, source_namespace: Path, target_namespace: Path) -> None:
        """OSError where an end is not there."""
        self.link = link
        self.end: End = link.end(source)
        self.peer: End = link.peer(source)
        self.impairment: Impairment = link.forward if self.end is link.a else link.backward
        self._mark = os.urandom(8)
        macs = [bytes.fromhex(end.mac.replace(":", "")) for end in (self.peer, self.end)]
        self._head = b"".join(macs) + TYPE.to_bytes(2, "big")
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._sender = stack.enter_context(inside(source_namespace, _packet_socket))
            self._sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER)
            self._sender.bind((self.end.ifname, 0))
            self._sender.setblocking(False)
            # one that takes the stamped frames, at the very interface (a bridge would take them away before), and one
            # that only is somebody to deliver to, so that a load does not count as dropped
            self.receiver = stack.enter_context(inside(target_namespace, _packet_socket))
            bpf.attach(self.receiver, _OURS)
            self.receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.receiver.bind((self.peer.ifname, _ETH_P_ALL))
            self.receiver.setblocking(False)
            sink = stack.enter_context(inside(target_namespace, _packet_socket))
            bpf.attach(sink, _NONE)
            sink.bind((self.peer.ifname, TYPE))
            self._counters = inside(
                target_namespace, lambda: os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)
            )
            stack.callback(os.close, self._counters)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stamp(self, number: int) -> None:
        """Send a short frame that says when it was sent. OSError where the interface is down."""
        body = _STAMP.pack(self._mark, number, time.time_ns())
        self._sender.send((self._head + body).ljust(LEAST_FRAME, b"\0"))

    def stamps(self) -> list[tuple[int, float]]:
        """(number, seconds on the way) of the stamped frames that have come, by the kernel's time of receipt."""
        found: list[tuple[int, float]] = []
        while True:
            try:
                data, ancillary, _, address = self.receiver.recvmsg(128, ANCILLARY)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno == errno.ENETDOWN:
                    return found
                raise
            if len(data) < len(self._head) + _STAMP.size:
                continue
            mark, number, sent = _STAMP.unpack_from(data, len(self._head))
            if mark == self._mark and address[2] != socket.PACKET_OUTGOING:
                found.append((number, (_received(ancillary) - sent) / 1e9))

    def deaf(self) -> None:
        """Take no more stamps: a load is coming."""
        bpf.attach(self.receiver, _NONE)

    def load(self, size: int) -> bool:
        """Send a frame of ``size`` bytes; whether it was taken. One that was not found the queue full."""
        try:
            self._sender.send(self._head + bytes(size - len(self._head)))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.ENETDOWN):
                return False
            raise
        return True

    def received_bytes(self) -> tuple[float, int]:
        """When, and how many bytes the receiving interface had got by then, all frames with their Ethernet headers."""
        for _ in range(_READINGS):
            before = time.monotonic()
            text = self._read_counters()
            after = time.monotonic()
            if after - before < _SHARP:  # else we were held up in between, and the time would say little
                break
        for line in text.splitlines():
            name, _, values = line.rpartition(":")
            if name.strip() == self.peer.ifname:
                return (before + after) / 2, int(values.split()[0])
        return after, 0

    def _read_counters(self) -> str:
        os.lseek(self._counters, 0, os.SEEK_SET)
        parts = []
        while part := os.read(self._counters, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")


def _packet_socket() -> socket.socket:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


def _received(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds * 10**9 + nanoseconds)
    return time.time_ns()
