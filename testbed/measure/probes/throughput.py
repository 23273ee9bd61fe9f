"""How much goes through: a sender in one node, a receiver in another, bounded in time and rate."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from testbed.errors import TestbedError
from testbed.measure.probes.base import Recorder, Target, connect, in_node, locate, outcome_of, recording

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Protocol = Literal["tcp", "udp"]
LONGEST = 120.0
"""Seconds."""
DEFAULT_UDP_BPS = 10_000_000
ETHERNET = 14
"""Bytes of the frame header, which a link's rate counts."""
_HEADERS = {("tcp", 4): 52, ("tcp", 6): 72, ("udp", 4): 28, ("udp", 6): 48}
"""Bytes of IP and transport headers; of TCP with its time stamp option, which Linux uses."""
_PIECE = 1 << 16
_NUMBER = struct.Struct("!Q")
_SLICE = 0.002
"""Seconds; a paced sender sends what is due once in so long."""
_IP_MTU, _IPV6_MTU = 14, 24
_MTU_DISCOVER, _PROBE_OFF = 10, 0


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the receiver got."""

    source: str
    target: str
    protocol: Protocol
    started: float
    """``time.monotonic()``."""
    outcome: str
    """``ok``, or why there was no connection."""
    seconds: float
    """How long the receiver counted."""
    bytes: int
    """Payload that the receiver got meanwhile."""
    sent: int = 0
    """UDP: datagrams sent in all."""
    received: int = 0
    """UDP: datagrams received in all."""
    payload_share: float = 1.0
    """Part of a full frame that is payload."""

    @property
    def bps(self) -> float:
        """Payload, bits per second."""
        return 8 * self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def link_bps(self) -> float:
        """Bits per second with all headers, the way a link's ``rate`` counts, if all frames were full."""
        return self.bps / self.payload_share

    @property
    def loss(self) -> float:
        """UDP: share of datagrams that did not arrive."""
        return 1 - self.received / self.sent if self.sent else 0.0


def payload_share(protocol: Protocol, mtu: int = 1500, version: int = 4) -> float:
    """Part of a full Ethernet frame that is payload: 1448/1514 for TCP over IPv4, 1472/1514 for UDP.

    A link of 8 Mbit/s therefore gives one TCP flow 7.65 Mbit/s.
    """
    return (mtu - _HEADERS[protocol, version]) / (mtu + ETHERNET)


def throughput(
    lab: Lab,
    source: str,
    target: str,
    *,
    protocol: Protocol = "tcp",
    seconds: float = 2.0,
    warm_up: float = 0.3,
    rate_bps: int | None = None,
    size: int | None = None,
    recorder: Recorder | None = None,
) -> Throughput:
    """Send from node ``source`` to node ``target`` for ``warm_up`` and then ``seconds``, in which bytes are counted.

    ``rate_bps`` bounds the payload that is sent (UDP: 10 Mbit/s unless said otherwise). ``size`` is a datagram's
    payload in bytes, by default what fills a frame. Samples: ``throughput_bps``, payload.
    """
    if not 0 < warm_up + seconds <= LONGEST or seconds <= 0 or warm_up < 0:
        raise TestbedError(f"throughput over {seconds:g} s", remedy=f"choose a time of at most {LONGEST:g} s")
    if protocol not in ("tcp", "udp"):
        raise TestbedError(f"throughput over {protocol!r}", remedy="choose tcp or udp")
    lab.node(target)
    place = locate(lab, target)
    measure = _tcp if protocol == "tcp" else _udp
    with recording(recorder, "throughput", source, target) as call:
        result = measure(lab, source, target, place, seconds, warm_up, rate_bps, size)
        call.sample("throughput_bps", result.bps if result.outcome == "ok" else None, call.ended)
        call.result(
            protocol=protocol,
            outcome=result.outcome,
            seconds=round(result.seconds, 6),
            bytes=result.bytes,
            bps=round(result.bps),
            **({"sent": result.sent, "received": result.received} if protocol == "udp" else {}),
        )
    return result


def _tcp(
    lab: Lab,
    source: str,
    target: str,
    place: Target,
    seconds: float,
    warm_up: float,
    rate_bps: int | None,
    size: int | None,
) -> Throughput:
    started = time.monotonic()
    share = payload_share("tcp", version=place.address.version)
    listener = in_node(lab, target, lambda: socket.create_server((str(place.address), 0), family=place.family))
    sender = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_STREAM))
    with listener, sender:
        outcome = connect(sender, place, listener.getsockname()[1], warm_up + seconds + 5)
        if outcome != "ok":
            return Throughput(source, target, "tcp", started, outcome, 0.0, 0)
        receiver, _ = listener.accept()
        sender.settimeout(0.2)
        with receiver, _sending(lambda over: _send_stream(sender, over, rate_bps)):
            _drain(receiver, time.monotonic() + warm_up)
            before = time.monotonic()
            got = _drain(receiver, before + seconds)
            taken = time.monotonic() - before
            mtu = _path_mtu(sender, place)
            share = payload_share("tcp", mtu, place.address.version)
    return Throughput(source, target, "tcp", started, "ok", taken, got, payload_share=share)


def _udp(
    lab: Lab,
    source: str,
    target: str,
    place: Target,
    seconds: float,
    warm_up: float,
    rate_bps: int | None,
    size: int | None,
) -> Throughput:
    started = time.monotonic()
    receiver = in_node(lab, target, lambda: socket.socket(place.family, socket.SOCK_DGRAM))
    sender = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_DGRAM))
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        receiver.bind((str(place.address), 0))
        outcome = connect(sender, place, receiver.getsockname()[1], 5)
        if outcome != "ok":
            return Throughput(source, target, "udp", started, outcome, 0.0, 0)
        version = place.address.version
        length = size or _path_mtu(sender, place) - _HEADERS["udp", version]
        share = length / (length + _HEADERS["udp", version] + ETHERNET)
        counts = _Datagrams()
        rate = rate_bps or DEFAULT_UDP_BPS
        with _sending(lambda over: _send_datagrams(sender, over, rate, length, counts)):
            counts.received += _count(receiver, time.monotonic() + warm_up)[1]
            before = time.monotonic()
            got, number = _count(receiver, before + seconds)
            taken = time.monotonic() - before
        counts.received += number + _count(receiver, None)[1]
    return Throughput(
        source, target, "udp", started, "ok", taken, got, counts.sent, counts.received, payload_share=share
    )


@dataclass
class _Datagrams:
    sent: int = 0
    received: int = 0


@contextmanager
def _sending(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Send in a thread for as long as the body runs."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name="throughput-sender", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _send_stream(sender: socket.socket, over: threading.Event, rate_bps: int | None) -> None:
    data, start, sent = bytes(_PIECE), time.monotonic(), 0
    with contextlib.suppress(ConnectionError):
        while not over.is_set():
            due = _PIECE if rate_bps is None else int((time.monotonic() - start) * rate_bps / 8) - sent
            if due <= 0:
                over.wait(_SLICE)
                continue
            with contextlib.suppress(TimeoutError):
                sent += sender.send(data[:due])


def _send_datagrams(sender: socket.socket, over: threading.Event, rate: int, length: int, counts: _Datagrams) -> None:
    padding, start, begun = bytes(max(0, length - _NUMBER.size)), time.monotonic(), 0
    while not over.is_set():
        # not more than a slice's worth after a pause: a sender that was held up must not flood
        due = int((time.monotonic() - start) * rate / 8 / length)
        begun = max(begun, due - max(1, int(10 * _SLICE * rate / 8 / length)))
        while begun < due and not over.is_set():
            begun += 1
            with contextlib.suppress(OSError):  # refused by the network, or an ICMP error: it is lost
                counts.sent += 1
                sender.send((_NUMBER.pack(counts.sent) + padding)[:length])
        over.wait(_SLICE)


def _drain(receiver: socket.socket, until: float) -> int:
    """Bytes received until the monotonic time ``until``."""
    total, buffer = 0, bytearray(1 << 20)
    while (left := until - time.monotonic()) > 0:
        receiver.settimeout(left)
        try:
            got = receiver.recv_into(buffer)
        except TimeoutError:
            break
        except OSError as error:
            raise TestbedError(f"the connection ended: {outcome_of(error)}") from error
        if not got:
            break
        total += got
    return total


def _count(receiver: socket.socket, until: float | None) -> tuple[int, int]:
    """(bytes, datagrams) received until then; None: until nothing has come for 0.2 s, for what is under way."""
    poll, total, number = select.poll(), 0, 0
    poll.register(receiver, select.POLLIN)
    receiver.setblocking(False)
    buffer = bytearray(1 << 16)
    while (left := 0.2 if until is None else until - time.monotonic()) > 0:
        if not poll.poll(1000 * left):
            break
        with contextlib.suppress(BlockingIOError):
            while until is None or time.monotonic() < until:
                total += receiver.recv_into(buffer)
                number += 1
    return total, number


def _path_mtu(sender: socket.socket, place: Target) -> int:
    level, option = (socket.IPPROTO_IP, _IP_MTU) if place.family == socket.AF_INET else (socket.IPPROTO_IPV6, _IPV6_MTU)
    return sender.getsockopt(level, option)
