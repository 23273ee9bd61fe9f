"""Queueing disciplines as the kernel takes and gives them: netlink structures of tc-tbf(8) and tc-netem(8).

pyroute2's message class carries them; their options are packed here, since its plugins know neither 64-bit rates nor
loss models, and send the rate of netem twice (linux/pkt_sched.h has the structures).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink.rtnl import RTM_DELQDISC, RTM_NEWQDISC
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from testbed.net.netlink import Netlink, Request, attributes, encode

ROOT = 0xFFFFFFFF
"""The parent of an interface's outermost queueing discipline."""

_GETQDISC = 38
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _STATS_QUEUE = 1, 2, 7, 3
_ATTRIBUTE = struct.Struct("=HH")
_INDEX = struct.Struct("=4xi")  # the beginning of struct tcmsg

_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_RATE = struct.Struct("=BBHhHI")  # struct tc_ratespec
_TBF = struct.Struct("=III")  # limit, buffer and mtu of struct tc_tbf_qopt, after two rates
_ETHERNET = 1  # as link layer; without it the kernel wants a table of transmission times

_NETEM = struct.Struct("=IIIIII")  # struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
_CORRELATION, _REORDER, _CORRUPT, _LOSS, _NETEM_RATE, _NETEM_RATE64, _LATENCY64, _JITTER64 = 1, 3, 4, 5, 6, 8, 10, 11
_LOSS_GILBERT = 2

_U32 = 2**32 - 1
TICK_NS = 64
"""The kernel's unit of time for queueing disciplines (PSCHED_SHIFT)."""


@dataclass(frozen=True, slots=True)
class Qdisc:
    """One queueing discipline of an interface."""

    index: int
    kind: str
    handle: int
    parent: int
    options: bytes
    queued: int
    """Packets in it and its children now."""
    dropped: int
    """Packets it has dropped since it was made, by loss or by overflow."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Settings of a token bucket: bytes a second, and bytes."""

    rate: int
    burst: int
    """The most it sends at once. Longer GSO frames are cut into packets first."""
    limit: int = 2**31 - 1
    """What may wait in it."""

    @property
    def burst_ns(self) -> int:
        """How long its burst takes at its rate, the form in which the kernel keeps it."""
        return self.burst * 10**9 // self.rate


@dataclass(frozen=True, slots=True)
class Netem:
    """Settings of netem, with probabilities as fractions of 2^32 - 1."""

    delay_ns: int
    jitter_ns: int
    limit: int
    """Packets that may be in it and its children."""
    loss: int = 0
    gilbert: tuple[int, int] | None = None
    """Loss in bursts, instead of ``loss``: probabilities of beginning and of ending one, with each packet."""
    duplicate: int = 0
    corrupt: int = 0
    rate: int = 0
    """Bytes a second at which packets leave one after the other, each not before its predecessor; 0: no such order."""


def fraction(share: float) -> int:
    """A probability as the kernel takes it. What is above 0 stays above 0."""
    return max(round(share * _U32), 1 if share > 0 else 0)


def tbf(what: str, index: int, handle: int, parent: int, bucket: TokenBucket, *, create: bool) -> Request:
    """A token bucket, new or changed."""
    rate = _RATE.pack(0, _ETHERNET, 0, 0, 0, min(bucket.rate, _U32))
    # The buffer (in 64 ns) stands in the older form too, where tc shows it; the kernel uses the exact one.
    parms = rate + bytes(_RATE.size) + _TBF.pack(bucket.limit, min(bucket.burst_ns // TICK_NS, _U32), 0)
    options = _attribute(_TBF_PARMS, parms) + _attribute(_TBF_BURST, struct.pack("=I", bucket.burst))
    if bucket.rate > _U32:
        options += _attribute(_TBF_RATE64, struct.pack("=Q", bucket.rate))
    return _request(what, "tbf", index, handle, parent, options, create)


def netem(what: str, index: int, handle: int, parent: int, settings: Netem, *, create: bool) -> Request:
    """A netem, new or changed. Every attribute is sent: a change keeps the old value of what is left out."""
    ticks = [min(ns // TICK_NS, _U32) for ns in (settings.delay_ns, settings.jitter_ns)]
    gap = 0
    options = _NETEM.pack(ticks[0], settings.limit, settings.loss, gap, settings.duplicate, ticks[1])
    options += _attribute(_CORRELATION, bytes(12)) + _attribute(_REORDER, bytes(8))
    options += _attribute(_CORRUPT, struct.pack("=II", settings.corrupt, 0))
    options += _attribute(_NETEM_RATE, struct.pack("=IiIi", min(settings.rate, _U32), 0, 0, 0))
    if settings.rate > _U32:
        options += _attribute(_NETEM_RATE64, struct.pack("=Q", settings.rate))
    options += _attribute(_LATENCY64, struct.pack("=q", settings.delay_ns))
    options += _attribute(_JITTER64, struct.pack("=q", settings.jitter_ns))
    if settings.gilbert:
        # h and k1: in a burst every packet is lost, between bursts none
        options += _attribute(_LOSS, _attribute(_LOSS_GILBERT, struct.pack("=IIII", *settings.gilbert, 0, 0)))
    return _request(what, "netem", index, handle, parent, options, create)


def delete(what: str, index: int, handle: int, parent: int = ROOT) -> Request:
    """Take a queueing discipline away, if it is at ``parent`` and has this handle."""
    message = tcmsg()
    message["index"], message["handle"], message["parent"] = index, handle, parent
    return encode(what, message, RTM_DELQDISC)


class _Message(tcmsg):  # type: ignore[misc]
    """pyroute2's message with options that are packed already."""

    _nlmsg_base__compiled_nla = False  # else what pyroute2 has cached for its own class would be used for this one

    @staticmethod
    def get_options(self: Any, *_: Any, **__: Any) -> Any:
        return self.cdata


def _request(what: str, kind: str, index: int, handle: int, parent: int, options: bytes, create: bool) -> Request:
    message = _Message()
    message["index"], message["handle"], message["parent"] = index, handle, parent
    message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
    return encode(what, message, RTM_NEWQDISC, create=create)


def _attribute(kind: int, payload: bytes) -> bytes:
    """A netlink attribute, padded to four bytes."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + bytes(-length % 4)


def dump(netlink: Netlink, index: int | None = None) -> Iterator[Qdisc]:
    """Every queueing discipline in the socket's namespace, or of one interface: the kernel gives all of them."""
    for data in netlink.dump(_GETQDISC, bytes(20)):
        if index is None or _INDEX.unpack_from(data)[0] == index:
            yield decode(data)


def decode(data: bytes) -> Qdisc:
    """A ``struct tcmsg`` and its attributes."""
    _, index, handle, parent = struct.unpack_from("=BxxxiII", data)
    parts = attributes(data, 20)
    queue = attributes(parts.get(_TCA_STATS2, b""), 0).get(_STATS_QUEUE, bytes(20))
    queued, _, dropped = struct.unpack_from("=III", queue)
    kind = parts[_TCA_KIND].rstrip(b"\0").decode()
    return Qdisc(index, kind, handle, parent, parts.get(_TCA_OPTIONS, b""), queued, dropped)


def decode_tbf(options: bytes) -> TokenBucket:
    """The settings in force; the burst to within 64 ns of the rate, which is how the kernel gives it."""
    parts = attributes(options, 0)
    rate = _RATE.unpack_from(parts[_TBF_PARMS])[5]
    if _TBF_RATE64 in parts:
        rate = struct.unpack("=Q", parts[_TBF_RATE64])[0]
    limit, buffer, _ = _TBF.unpack_from(parts[_TBF_PARMS], 2 * _RATE.size)
    return TokenBucket(rate=rate, burst=buffer * TICK_NS * rate // 10**9, limit=limit)


def decode_netem(options: bytes) -> Netem:
    """The settings in force."""
    _, limit, loss, _, duplicate, _ = _NETEM.unpack_from(options)
    parts = attributes(options, _NETEM.size)
    rate = struct.unpack_from("=I", parts[_NETEM_RATE])[0]
    if _NETEM_RATE64 in parts:
        rate = struct.unpack("=Q", parts[_NETEM_RATE64])[0]
    model = attributes(parts.get(_LOSS, b""), 0).get(_LOSS_GILBERT)
    begin, end, lost_after, lost_between = struct.unpack("=IIII", model) if model else (0, 0, 0, 0)
    if lost_after or lost_between:
        raise ValueError("this is not our loss model")
    return Netem(
        delay_ns=struct.unpack("=q", parts[_LATENCY64])[0],
        jitter_ns=struct.unpack("=q", parts[_JITTER64])[0],
        limit=limit,
        loss=loss,
        gilbert=(begin, end) if model else None,
        duplicate=duplicate,
        corrupt=struct.unpack_from("=I", parts[_CORRUPT])[0],
        rate=rate,
    )
