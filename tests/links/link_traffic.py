"""Numbered datagrams over a link, with the times at which they were sent and at which the kernel received them.

The kernel's time of receipt (SO_TIMESTAMPNS) does not depend on when the test is scheduled. It is read from the same
clock as the time of sending, so a one-way delay is their difference.
"""

from __future__ import annotations

import functools
import math
import os
import select
import socket
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ParamSpec

from link_world import ImpairedLink

from testbed.net import namespace

_PORT = 5001
_HEAD = struct.Struct("!Iq")
_END = 2**32 - 1
_ENDS = 30
"""How many times the end is said: it may be lost too."""
_UDP_SEGMENT, _SO_NO_CHECK = 103, 11  # linux/udp.h, asm-generic/socket.h
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 35, 33, 32  # asm-generic/socket.h
_BUFFER = 1 << 27

P = ParamSpec("P")

EARLY = 50e-6
"""Seconds: the wall clock may be slewed while a packet is on its way."""
LATE = float(os.environ.get("LINK_LATE_MS", "5")) / 1000
"""Seconds by which packets may be late on a busy machine, or longer in a slow virtual one."""
IP_AND_UDP = 28
FRAME_HEADERS = 14 + IP_AND_UDP


@dataclass(frozen=True, slots=True)
class Arrival:
    """One datagram that came through."""

    number: int
    delay: float
    """Seconds from its sending to its receipt by the kernel."""
    received: float
    """When, in seconds of the wall clock."""
    payload: bytes


class Flow:
    """Datagrams from one end of a link to the other, in one thread: they wait in the receiver's buffer until read."""

    def __init__(self, link: ImpairedLink, source: str = "a", *, checksum: bool = True) -> None:
        target = "b" if source == "a" else "a"
        address = (link.address(target), _PORT)
        self._receiver = namespace.inside(link.namespaces[target], lambda: _udp(_SO_RCVBUFFORCE))
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._receiver.bind(address)
        self._sender = namespace.inside(link.namespaces[source], lambda: _udp(_SO_SNDBUFFORCE))
        self._sender.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 0 if checksum else 1)
        self._sender.connect(address)
        self.sent: list[float] = []
        """When each datagram was sent, by number."""
        self._warm_up()

    def __enter__(self) -> Flow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.close()
        self._receiver.close()

    def _warm_up(self) -> None:
        """The kernel begins to take times a moment after the first socket wants them, so some are received first."""
        deadline = time.monotonic() + 0.1
        own = self._receiver.getsockname()
        while time.monotonic() < deadline:
            self._receiver.sendto(b"", own)
            self._receiver.recv(100)

    def send(self, count: int, *, size: int = 100, every: float = 0.0) -> None:
        """Send ``count`` datagrams of ``size`` bytes, one ``every`` so many seconds, or one after the other."""
        padding = padding_of(size)
        start, send, sent = time.monotonic(), self._sender.send, self.sent
        for index in range(count):
            if every:
                _until(start + index * every)
            now = time.time_ns()
            send(_HEAD.pack(len(sent), now) + padding)
            sent.append(now / 1e9)

    def send_at_once(self, count: int, *, size: int = 100) -> None:
        """Send ``count`` datagrams in one call, as one frame for the kernel to cut up (GSO)."""
        now, first = time.time_ns(), len(self.sent)
        parts = [_HEAD.pack(first + index, now) + padding_of(size) for index in range(count)]
        self._sender.sendmsg([b"".join(parts)], [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", size))])
        self.sent.extend([now / 1e9] * count)

    def arrivals(self, *, quiet: float = 1.5) -> list[Arrival]:
        """All that came through, in order of receipt. Waits until the end is received, which is sent now and many
        times, or until nothing has come for ``quiet`` seconds. For links that keep the order; else see ``rest``."""
        for _ in range(_ENDS):
            self._sender.send(_HEAD.pack(_END, time.time_ns()))
        return self._receive(quiet)

    def rest(self, *, quiet: float = 1.0) -> list[Arrival]:
        """All that comes until nothing has come for ``quiet`` seconds."""
        return self._receive(quiet)

    def _receive(self, quiet: float) -> list[Arrival]:
        found: list[Arrival] = []
        self._receiver.setblocking(False)
        while True:
            try:
                data, ancillary, _, _ = self._receiver.recvmsg(65536, 64)
            except BlockingIOError:
                if not select.select([self._receiver], [], [], quiet)[0]:
                    return found
                continue
            number, sent = _HEAD.unpack_from(data)
            if number == _END:
                return found
            seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
            received = seconds * 10**9 + nanoseconds
            found.append(Arrival(number, (received - sent) / 1e9, received / 1e9, data[_HEAD.size :]))


def padding_of(size: int) -> bytes:
    """What fills a datagram of ``size`` bytes."""
    return b"\x55" * (size - _HEAD.size)


def _udp(buffer: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER)
    return made


def _until(moment: float) -> None:
    """Wait for a moment of the monotonic clock; the last tenths of a millisecond without sleep, which is coarse."""
    left = moment - time.monotonic()
    if left > 0.0005:
        time.sleep(left - 0.0003)
    while time.monotonic() < moment:
        pass


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of ``values`` do not exceed. Unlike a maximum it does not mind a few late packets."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def is_share(count: int, of: int, share: float, *, inflation: float = 1.0) -> bool:
    """Whether ``count`` of ``of`` can be by chance where each has probability ``share``: within six standard
    deviations of a binomial distribution, whose variance is ``inflation`` times as large where neighbours depend on
    each other."""
    deviation = math.sqrt(of * share * (1 - share) * inflation)
    return abs(count - of * share) <= 6 * deviation + 1


class Late(AssertionError):
    """Packets came later, or fewer in a time, than they should: the engine's fault, or that of a busy machine."""


def repeated_if_late(test: Callable[P, None]) -> Callable[P, None]:
    """A test that is tried five times before lateness counts. A packet that is early, lost or out of order, or a rate
    that is too high, is the engine's fault alone, and fails at once."""

    @functools.wraps(test)
    def tried(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(4):
            try:
                return test(*args, **kwargs)
            except Late as late:
                print(f"tried again: {late}")
        return test(*args, **kwargs)

    return tried


def assert_delay(seen: Sequence[float], wanted: float, *, share: float = 0.25) -> None:
    """No packet before its time, and the fastest ``share`` of them not much after it."""
    assert min(seen) >= wanted - EARLY
    if (found := quantile(seen, share)) > wanted + LATE:
        raise Late(f"{share:.0%} of delays are up to {found * 1000:.1f} ms instead of {wanted * 1000:.1f} ms")


def assert_rate(arrivals: Sequence[Arrival], size: int, rate: float, delay: float = 0.0) -> None:
    """Datagrams of ``size`` bytes were let through at ``rate`` bits a second, frame headers included, while more of
    them waited: those that took more than 10 ms longer than ``delay``.

    The median over stretches of 10 packets, so that neither a sender that paused nor a machine that stood still for
    some milliseconds counts.
    """
    bits, stretch = (size + FRAME_HEADERS) * 8, 10
    rates = []
    for first in range(0, len(arrivals) - stretch, stretch // 2):
        part = arrivals[first : first + stretch + 1]
        if min(arrival.delay for arrival in part) > delay + 0.010:
            rates.append(stretch * bits / (part[-1].received - part[0].received))
    if len(rates) < 10:
        raise Late(f"packets seldom waited: {len(arrivals)} arrived, {len(rates)} stretches with a queue")
    found = statistics.median(rates)
    assert found < rate * 1.03
    if found < rate * 0.97:
        raise Late(f"{found / 1e6:.3f} Mbit/s instead of {rate / 1e6:.3f}")
