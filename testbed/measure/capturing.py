"""The process that captures: packet sockets inside a node to pcapng files. Started by ``capture.Capture``.

A process of its own, so that a capture takes no time from what is measured. It opens its sockets in the node's network
namespace and lives outside, so it is none of the node's processes. It ends when its input is closed (the one who
started it has stopped it, or is gone) or on SIGTERM; and it is ended with the lab, whose mark it carries.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed import __version__
from testbed.measure import bpf, pcapng
from testbed.net.namespace import inside

_ETH_P_ALL, _SOL_PACKET, _PACKET_STATISTICS = 3, 263, 6
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_BUFFER = 32 << 20
"""Bytes that may wait in the kernel for each interface, headers of its own included."""
_OUTGOING = 4
_FLUSH_SECONDS, _FLUSH_BYTES = 0.2, 1 << 18
_AGAIN = 0.05
"""Seconds between two attempts to find an interface that is gone."""
_MANY = 256
"""Packets that are read from one interface before the next has its turn."""
_TIME = struct.Struct("=qq")


@dataclass(frozen=True)
class Order:
    """What is to be captured, as JSON on the command line."""

    namespace: str
    interfaces: list[dict[str, Any]]
    """``ifname`` beside the fields of ``pcapng.Interface``."""
    file: str
    """``-`` is the standard output."""
    file_bytes: int
    files: int
    """How many files are kept, the newest."""
    seconds: float | None
    program: bpf.Program
    comment: str = ""


@dataclass
class Report:
    """What came of it, as JSON for the one who started it."""

    files: list[str] = field(default_factory=list)
    removed: int = 0
    """Older files that had to give way."""
    packets: int = 0
    bytes: int = 0
    """Written."""
    received: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    """Packets that the kernel dropped because they were not read in time, by interface."""
    interrupted: dict[str, int] = field(default_factory=dict)
    """How often an interface was down or gone."""
    error: str = ""


class _Source:
    """One interface."""

    def __init__(self, order: Order, number: int) -> None:
        described = dict(order.interfaces[number])
        self.ifname: str = described.pop("ifname")
        self.described = pcapng.Interface(**described)
        self.received = self.dropped = self.delivered = self.interrupted = 0
        self.again_at: float | None = None
        self._down = False
        self.socket = inside(Path(order.namespace), lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        # the filter first: what comes before it would be let through
        if order.program:
            bpf.attach(self.socket, order.program)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.socket.setblocking(False)
        self.bind()

    def bind(self) -> None:
        """Listen to the interface that has the name now: a link may be made anew."""
        self.socket.bind((self.ifname, _ETH_P_ALL))

    def broken(self) -> None:
        """The interface is down or gone."""
        self.interrupted += not self._down
        self._down = True
        self.again_at = time.monotonic() + _AGAIN

    def works(self) -> None:
        """A packet came."""
        self._down = False

    def mend(self) -> None:
        """Look for the interface again."""
        self.again_at = None
        try:
            self.bind()
        except OSError:
            self.again_at = time.monotonic() + _AGAIN

    def count(self) -> None:
        """Add what the kernel has counted since the last time."""
        raw = self.socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        packets, drops = struct.unpack("=II", raw)
        self.received += packets
        self.dropped += drops


class _Files:
    """Where packets go: one file after the other, none above the limit, and only the newest kept."""

    def __init__(self, order: Order, sources: list[_Source], report: Report) -> None:
        self._order, self._sources, self._report = order, sources, report
        self._pending = bytearray()
        self._size = 0
        self._number = 0
        self._started = time.time_ns()
        self._fd = -1
        self._open()

    def write(self, block: bytes) -> None:
        """Add a block; a new file begins where this one would pass the limit."""
        if self._size + len(block) > self._order.file_bytes and self._order.file != "-":
            self._close()
            self._open()
        self._add(block)
        self._report.packets += 1
        if len(self._pending) >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the kernel, so that a reader sees whole blocks. OSError if the disk is full."""
        done = 0
        try:
            while done < len(self._pending):
                done += os.write(self._fd, memoryview(self._pending)[done:])
        finally:
            self._report.bytes += done
            del self._pending[:done]

    def finish(self) -> None:
        """End the last file."""
        self._close()

    def _add(self, block: bytes) -> None:
        self._pending += block
        self._size += len(block)

    def _open(self) -> None:
        self._number += 1
        path = self._path()
        self._fd = os.dup(1) if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        if path is not None:
            self._report.files.append(str(path))
        while len(self._report.files) > self._order.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._report.files.pop(0))
            self._report.removed += 1
        self._size = 0
        self._add(pcapng.section(f"testbed {__version__}", f"Linux {platform.release()}", self._order.comment))
        for source in self._sources:
            self._add(pcapng.interface(source.described))
        self.flush()

    def _close(self) -> None:
        now = time.time_ns()
        for number, source in enumerate(self._sources):
            source.count()
            self._add(pcapng.statistics(number, self._started, now, source.received, source.dropped, source.delivered))
        try:
            self.flush()
        finally:
            os.close(self._fd)

    def _path(self) -> Path | None:
        if self._order.file == "-":
            return None
        first = Path(self._order.file)
        return first if self._number == 1 else first.with_name(f"{first.stem}-{self._number:05}{first.suffix}")


def capture(order: Order, wake: int, ready: Any, report: Report) -> None:
    """Capture until ``wake``, a file descriptor, is readable or at its end, or the time is over."""
    sources = [_Source(order, number) for number in range(len(order.interfaces))]
    files = _Files(order, sources, report)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    by_fd = {source.socket.fileno(): (number, source) for number, source in enumerate(sources)}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    ready()
    deadline = None if order.seconds is None else time.monotonic() + order.seconds
    buffer = bytearray(1 << 18)
    try:
        flushed = time.monotonic()
        while deadline is None or time.monotonic() < deadline:
            left = _FLUSH_SECONDS if deadline is None else min(_FLUSH_SECONDS, max(0.0, deadline - time.monotonic()))
            found = poll.poll(1000 * left)
            for fd, _ in found:
                if fd != wake:
                    _read(*by_fd[fd], buffer, files)
            now = time.monotonic()
            for source in sources:
                if source.again_at is not None and now >= source.again_at:
                    source.mend()
            if now - flushed > _FLUSH_SECONDS:
                files.flush()
                flushed = now
            if any(fd == wake for fd, _ in found):
                break
        for number, source in enumerate(sources):
            _read(number, source, buffer, files, everything=True)
    finally:
        try:
            files.finish()
        finally:
            for source in sources:
                report.received[source.described.name] = source.received
                report.dropped[source.described.name] = source.dropped
                report.interrupted[source.described.name] = source.interrupted


def _read(number: int, source: _Source, buffer: bytearray, files: _Files, *, everything: bool = False) -> None:
    view, snaplen, end_ns = memoryview(buffer), source.described.snaplen, time.time_ns()
    for taken in range(1 << 62 if everything else _MANY):
        try:
            length, ancillary, _, address = source.socket.recvmsg_into([buffer], 64, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            source.broken()
            return
        if taken == 0:
            source.works()
        time_ns = end_ns
        for _, kind, data in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIME.unpack_from(data)
                time_ns = seconds * 10**9 + nanoseconds
        kept = min(length, snaplen, len(buffer))
        files.write(pcapng.packet(number, time_ns, view[:kept], length, outgoing=address[2] == _OUTGOING))
        source.delivered += 1
        if everything and time_ns > end_ns:
            return  # what comes after the end is not wanted any more


def main() -> int:
    """``python -m testbed.measure.capturing FD ORDER``; tells of itself on file descriptor FD, a JSON object a line."""
    told = int(sys.argv[1])
    order = Order(**json.loads(sys.argv[2]))
    report = Report()

    def tell(**facts: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(told, json.dumps(facts).encode() + b"\n")

    # SIGTERM is the same as the end of the input: both make one descriptor readable
    inner, outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(outer)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    wake = select.epoll()
    wake.register(inner, select.EPOLLIN)
    wake.register(0, select.EPOLLIN)
    try:
        capture(order, wake.fileno(), lambda: tell(ready=True), report)
    except OSError as error:
        report.error = error.strerror or str(error)
    tell(**asdict(report))
    return 1 if report.error else 0


if __name__ == "__main__":
    sys.exit(main())
