"""Which nodes a packet crosses: probes whose time to live ends one hop further each time."""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

from testbed.errors import TestbedError
from testbed.measure.probes.base import Recorder, Target, connect, in_node, locate, recording

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.plan.types import Plan

Method = Literal["udp", "icmp"]
PORT = 33434
"""Where UDP probes go; nobody listens there, and the target says so."""
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_EXTENDED = struct.Struct("=IBBBBII")  # struct sock_extended_err, linux/errqueue.h
_ICMP, _ICMP6 = 2, 3  # its origins
_TIME_EXCEEDED = {_ICMP: 11, _ICMP6: 3}
_UNREACHABLE = {_ICMP: 3, _ICMP6: 1}
_PORT = {_ICMP: 3, _ICMP6: 4}
_MARK = struct.Struct("!4sI")


@dataclass(frozen=True, slots=True)
class Hop:
    """Who answered to one time to live."""

    ttl: int
    address: str | None
    """None: nobody."""
    node: str | None
    """Whose address it is; None where the plan does not have it."""
    rtt: float | None
    """Seconds."""


@dataclass(frozen=True, slots=True)
class PathResult:
    """The hops in order; the last one is the target if it was reached."""

    source: str
    target: str
    hops: tuple[Hop, ...]
    reached: bool

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes that answered, in order; the address of one that the plan does not know, ``*`` of none."""
        return [hop.node or hop.address or "*" for hop in self.hops]

    @property
    def routers(self) -> list[str]:
        """As ``nodes``, without the target."""
        return self.nodes[:-1] if self.reached else self.nodes


def path(
    lab: Lab,
    source: str,
    target: str,
    *,
    method: Method = "udp",
    port: int = PORT,
    most: int = 30,
    timeout: float = 1.0,
    tries: int = 2,
    recorder: Recorder | None = None,
) -> PathResult:
    """Find the way from node ``source`` to ``target``, a node or an address.

    All probes are of one flow, so that they take one way also where several are equal (Augustin et al., Avoiding
    traceroute anomalies with Paris traceroute, IMC 2006). One hop after the other, each asked ``tries`` times for
    ``timeout`` seconds; a target that does not answer costs ``most`` times that. Linux sends one address at most six
    such answers at once and then one a second (icmp_ratelimit): of paths in quick succession some hops show no answer.
    """
    if method not in ("udp", "icmp"):
        raise TestbedError(f"a path by {method!r}", remedy="choose udp or icmp")
    place = locate(lab, target)
    names = addresses(lab.plan)
    with recording(recorder, "path", source, target) as call:
        opened = in_node(lab, source, lambda: _open(place, method))
        hops: list[Hop] = []
        reached = False
        with opened:
            outcome = connect(opened, place, port, timeout)
            while outcome == "ok" and len(hops) < most and not reached:
                answer = _ask(opened, place, method, len(hops) + 1, timeout, tries)
                reached = answer.final
                node = names.get(answer.address) if answer.address else None
                hops.append(Hop(len(hops) + 1, answer.address, node, answer.rtt))
                if answer.stopped:
                    break
        result = PathResult(source, target, tuple(hops), reached)
        call.result(method=method, outcome=outcome, reached=reached, nodes=result.nodes)
    return result


def addresses(plan: Plan) -> dict[str, str]:
    """Node name of every address in the plan."""
    return {
        str(interface.ip): end.node for link in plan.links for end in (link.a, link.b) for interface in end.addresses
    }


@dataclass(frozen=True, slots=True)
class _Answer:
    address: str | None = None
    rtt: float | None = None
    final: bool = False
    """The target itself."""
    stopped: bool = False
    """There is no way on."""


def _open(place: Target, method: Method) -> socket.socket:
    if method == "udp":
        opened = socket.socket(place.family, socket.SOCK_DGRAM)
    else:
        protocol = socket.IPPROTO_ICMP if place.family == socket.AF_INET else socket.IPPROTO_ICMPV6
        opened = socket.socket(place.family, socket.SOCK_DGRAM, protocol)
    if place.family == socket.AF_INET:
        opened.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
    else:
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
    return opened


def _ask(opened: socket.socket, place: Target, method: Method, ttl: int, timeout: float, tries: int) -> _Answer:
    level, option = (
        (socket.IPPROTO_IP, socket.IP_TTL)
        if place.family == socket.AF_INET
        else (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)
    )
    opened.setsockopt(level, option, ttl)
    for number in range(tries):
        # the number comes back in the answer, so that a late one is not taken for another's
        mark = _MARK.pack(b"path", ttl * 1000 + number)
        kind = 8 if place.family == socket.AF_INET else 128
        data = mark if method == "udp" else struct.pack("!BBHHH", kind, 0, 0, 0, ttl * 1000 + number) + mark
        sent = time.monotonic()
        try:
            opened.send(data)
        except OSError as error:
            if _await(opened, mark, place, sent, 0) is None and error.errno is None:
                raise
        answer = _await(opened, mark, place, sent, timeout)
        if answer is not None:
            return answer
    return _Answer()


def _await(opened: socket.socket, mark: bytes, place: Target, sent: float, timeout: float) -> _Answer | None:
    opened.setblocking(False)
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    while True:
        try:
            data, ancillary, flags, _ = opened.recvmsg(4096, 512, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            data, ancillary, flags = b"", [], 0
        if flags & socket.MSG_ERRQUEUE:
            answer = _error(ancillary, sent)
            if mark in data and answer is not None:
                return answer
            continue
        try:
            data = opened.recv(4096)
        except BlockingIOError:
            data = b""
        except OSError:
            continue  # the same error again, in the form that a plain socket has it
        if mark in data:
            return _Answer(str(place.address), time.monotonic() - sent, final=True)
        left = sent + timeout - time.monotonic()
        if not data and (left <= 0 or not poll.poll(1000 * left)):
            return None


def _error(ancillary: list[tuple[int, int, bytes]], sent: float) -> _Answer | None:
    """What an ICMP error says (RFC 792, RFC 4443), from the socket's error queue: ip(7)."""
    rtt = time.monotonic() - sent
    for _, kind, data in ancillary:
        if kind not in (_IP_RECVERR, _IPV6_RECVERR):
            continue
        _, origin, icmp, code, _, _, _ = _EXTENDED.unpack_from(data)
        if origin not in (_ICMP, _ICMP6):
            return _Answer(stopped=True)  # our own kernel has no way
        offender = data[_EXTENDED.size :]
        raw = offender[4:8] if origin == _ICMP else offender[8:24]
        address = str(ip_address(raw))
        if icmp == _TIME_EXCEEDED[origin]:
            return _Answer(address, rtt)
        if icmp == _UNREACHABLE[origin]:
            final = code == _PORT[origin]
            return _Answer(address, rtt, final=final, stopped=not final)
    return None
