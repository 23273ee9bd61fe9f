"""Echo requests in a row: round-trip times and losses."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.measure import stats
from testbed.measure.probes.base import (
    ANCILLARY,
    SO_TIMESTAMPNS,
    Call,
    Recorder,
    Target,
    elapsed,
    in_node,
    locate,
    outcome_of,
    recording,
)

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence: RFC 792, RFC 4443
_MARK = struct.Struct("!4sI")
"""At the payload's beginning: whose echo it is, and its number, which does not wrap as the sequence does."""
_REQUEST, _REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
LEAST_SIZE = _MARK.size


@dataclass(frozen=True, slots=True)
class Echo:
    """One request: its number from 1, when it was sent (``time.monotonic()``), and its round-trip time in seconds."""

    number: int
    sent: float
    rtt: float | None
    """None: no answer in time."""


@dataclass(frozen=True, slots=True)
class PingSeries:
    """All requests in the order of sending. Times are seconds."""

    source: str
    target: str
    address: str
    echoes: tuple[Echo, ...]
    duplicates: int
    """Answers beyond the first to the same request."""

    @property
    def sent(self) -> int:
        """Number of requests."""
        return len(self.echoes)

    @property
    def rtts(self) -> list[float]:
        """Round-trip times of those that were answered."""
        return [echo.rtt for echo in self.echoes if echo.rtt is not None]

    @property
    def lost(self) -> int:
        """Number of requests without an answer."""
        return sum(echo.rtt is None for echo in self.echoes)

    @property
    def loss(self) -> float:
        """Share of requests without an answer, 0 to 1."""
        return self.lost / self.sent

    @property
    def median(self) -> float:
        """Median round-trip time of what was answered; NaN if nothing was."""
        return stats.median(self.rtts)


def ping(
    lab: Lab,
    source: str,
    target: str,
    *,
    count: int = 10,
    interval: float = 0.2,
    timeout: float = 1.0,
    size: int = 56,
    recorder: Recorder | None = None,
) -> PingSeries:
    """Send ``count`` echo requests with ``size`` bytes of payload from node ``source``, one each ``interval`` seconds.

    ``target`` is a node or an address. An answer after ``timeout`` seconds counts as lost. Samples: ``ping_rtt`` of
    ``source>target``, without a value where the answer is missing.
    """
    if count < 1 or interval < 0 or timeout <= 0 or size < LEAST_SIZE:
        raise TestbedError(
            f"ping of {count} requests every {interval:g} s, time-out {timeout:g} s, {size} bytes makes no sense",
            remedy=f"at least 1 request, a time-out above 0 and {LEAST_SIZE} bytes",
        )
    place = locate(lab, target)
    with recording(recorder, "ping", source, target) as call, open_socket(lab, source, place) as opened:
        pinger = Pinger(opened, place, size)
        echoes = _series(pinger, call, count, interval, timeout)
        series = PingSeries(source, target, str(place.address), tuple(echoes), pinger.duplicates)
        call.result(
            address=series.address,
            sent=series.sent,
            received=series.sent - series.lost,
            duplicates=series.duplicates,
            rtt=None if not series.rtts else round(series.median, 9),
        )
    return series


def open_socket(lab: Lab, node: str, target: Target) -> socket.socket:
    """A datagram socket for echoes inside ``node``: the kernel gives it an identifier and only its own answers.

    TestbedError where the node does not allow it (its sysctl ``ping_group_range``, which a lab sets).
    """
    protocol = socket.IPPROTO_ICMP if target.family == socket.AF_INET else socket.IPPROTO_ICMPV6
    try:
        opened = in_node(lab, node, lambda: socket.socket(target.family, socket.SOCK_DGRAM, protocol))
    except PermissionError as error:
        raise TestbedError("echo sockets are not allowed here", where=f"node {node}") from error
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    opened.setblocking(False)
    return opened


class Pinger:
    """Sends numbered echo requests and matches their answers."""

    def __init__(self, opened: socket.socket, target: Target, size: int) -> None:
        self._socket = opened
        self._target = target
        self._mark = os.urandom(4)
        self._padding = bytes(size - _MARK.size)
        self._waiting: dict[int, tuple[float, int]] = {}
        self._answered: set[int] = set()
        self.duplicates = 0

    def send(self, number: int) -> tuple[float, str]:
        """Send request ``number``: when, and ``ok`` or what the kernel said instead."""
        kind = _REQUEST[self._target.address.version]
        # the kernel fills in checksum and identifier
        head = _HEADER.pack(kind, 0, 0, 0, number & 0xFFFF)
        data = head + _MARK.pack(self._mark, number & 0xFFFFFFFF) + self._padding
        self._waiting[number] = sent, _ = time.monotonic(), time.time_ns()
        try:
            self._socket.sendto(data, (str(self._target.address), 0))
        except OSError as error:
            del self._waiting[number]
            return sent, outcome_of(error)
        return sent, "ok"

    def receive(self) -> list[tuple[int, float]]:
        """(number, round-trip time) of the answers that are there."""
        found: list[tuple[int, float]] = []
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(65536, ANCILLARY)
            except BlockingIOError:
                return found
            except OSError:
                continue  # an ICMP error about an earlier request; that one is lost by its time-out
            number = self._number(data)
            if number is None:
                continue
            if number in self._waiting:
                sent, wall = self._waiting.pop(number)
                self._answered.add(number)
                found.append((number, elapsed(ancillary, wall, sent)))
            elif number in self._answered:
                self.duplicates += 1

    def give_up(self, number: int) -> None:
        """Take no answer to request ``number`` any more."""
        self._waiting.pop(number, None)

    def wait(self, until: float) -> None:
        """Wait for an answer, at most until the monotonic time ``until``."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        # in whole milliseconds, and rather too early: the caller looks at the clock again
        poll.poll(max(0.0, 1000 * (until - time.monotonic())))

    def _number(self, data: bytes) -> int | None:
        if len(data) < _HEADER.size + _MARK.size or data[0] != _REPLY[self._target.address.version]:
            return None
        mark, number = _MARK.unpack_from(data, _HEADER.size)
        return int(number) if mark == self._mark else None


def _series(pinger: Pinger, call: Call, count: int, interval: float, timeout: float) -> list[Echo]:
    start, number = time.monotonic(), 0
    waiting: dict[int, float] = {}
    echoes: dict[int, Echo] = {}

    def settle(number: int, rtt: float | None) -> None:
        echo = Echo(number, waiting.pop(number), None if rtt is None or rtt > timeout else rtt)
        echoes[number] = echo
        call.sample("ping_rtt", echo.rtt, echo.sent)

    while len(echoes) < count:
        if number < count and time.monotonic() >= start + number * interval:
            number += 1
            waiting[number], outcome = pinger.send(number)
            if outcome != "ok":
                settle(number, None)
        for answered, rtt in pinger.receive():
            settle(answered, rtt)
        for late in [key for key, sent in waiting.items() if time.monotonic() - sent >= timeout]:
            pinger.give_up(late)
            settle(late, None)
        moments = [sent + timeout for sent in waiting.values()]
        if number < count:
            moments.append(start + number * interval)
        if moments:
            pinger.wait(min(moments))
    return [echoes[key] for key in sorted(echoes)]
