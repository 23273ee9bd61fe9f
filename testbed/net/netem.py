"""Impairment by the kernel's netem: what leaves an interface is delayed, lost, doubled, spoilt and held to a rate.

Three queueing disciplines follow each other at the interface's egress, the same ones whatever the impairment is, so
that a live change is a change of settings only, which loses no packet:

    7b00: tbf    cuts GSO frames into packets where it matters, since netem would lose or double all of one at once
    7b01: netem  delay, jitter, loss, duplicates, corruption; its limit follows from rate and delay
    7b02: tbf    the rate, with a queue of 50 ms

All three handles are ours, and nothing with another handle is ever changed or removed. The rate comes after the delay:
with a constant delay the order makes no difference (both are first-in first-out), and the queue of the rate is counted
in bytes this way, apart from the packets that are on their way.

Cutting comes before netem also because a token bucket that cuts below netem makes kernels before 6.13 miscount netem's
queue until it is full for good (Linux commit f8d4bc455047).
"""

from __future__ import annotations

import errno
import os
import time
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.net import namespace, qdisc
from testbed.net.netlink import Netlink, Request
from testbed.net.requests import LOOPBACK, QDISC_HANDLE
from testbed.plan.types import Impairment

SPLIT, IMPAIR, RATE = QDISC_HANDLE, QDISC_HANDLE + 0x10000, QDISC_HANDLE + 0x20000
"""Handles, outermost first. A link that is only limited in rate has one token bucket, with the first of them."""

UNLIMITED = qdisc.TokenBucket(rate=2**34, burst=2**20)
"""137 Gbit/s, far beyond what a virtual interface carries, and bursts longer than any frame."""

_IN_ORDER = 2**40
"""netem keeps the order of packets only if it has a rate (netem_enqueue in net/sched/sch_netem.c): bytes a second, so
many that they take no time."""

_HEADER_ROOM = 22
"""Bytes of a frame beside the MTU: Ethernet header and two VLAN tags."""
_SMALLEST_FRAME, _LONGEST_FRAME = 64, 2**16
_ANY_MTU = 1500
_MOST_PACKETS_PER_SECOND = 1_500_000
"""More than one CPU sends or forwards."""
_LEAST_LIMIT, _MOST_LIMIT = 1000, 1_000_000
_QUEUE_SECONDS = 0.05
_LONGEST_JITTER_US = 2_147_483
"""What netem can take (INT_MAX ns)."""
_DRAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the three."""

    split: qdisc.TokenBucket
    netem: qdisc.Netem
    rate: qdisc.TokenBucket


def settings(impairment: Impairment, mtu: int) -> Settings:
    """What the kernel is asked for. TestbedError if no kernel can do it."""
    one_by_one = impairment.loss or impairment.duplicate or impairment.corrupt or impairment.reorder
    rated = impairment.rate_bps is not None
    # Also with a rate: a GSO frame of 64 KiB would be a burst of 52 ms at 10 Mbit/s.
    split = replace(UNLIMITED, burst=mtu + _HEADER_ROOM) if one_by_one or rated else UNLIMITED
    return Settings(split, _netem(impairment), rate_bucket(impairment.rate_bps, mtu))


def rate_bucket(rate_bps: int | None, mtu: int) -> qdisc.TokenBucket:
    """A token bucket for a rate: a burst of 1 ms of it, at least two packets; a queue of 50 ms."""
    if rate_bps is None:
        return UNLIMITED
    rate = rate_bps // 8
    burst = max(2 * mtu, rate // 1000)
    return qdisc.TokenBucket(rate, burst, limit=min(int(rate * _QUEUE_SECONDS) + burst, UNLIMITED.limit))


def limit(impairment: Impairment) -> int:
    """How many packets netem must hold for a clean link to drop none (case C14): the smallest ones at the full rate
    for as long as they are delayed, and a full queue of the rate, which newer kernels count too.

    It takes no memory before there are packets. With netem's default of 1000, packets of 1500 bytes at 100 ms are lost
    from 120 Mbit/s on.
    """
    per_second: float = _MOST_PACKETS_PER_SECOND
    if impairment.rate_bps is not None:
        per_second = min(per_second, impairment.rate_bps / 8 / _SMALLEST_FRAME)
    seconds = (impairment.delay_us + impairment.jitter_us) / 1e6 + _QUEUE_SECONDS
    return min(_LEAST_LIMIT + int(per_second * seconds), _MOST_LIMIT)


def _netem(impairment: Impairment) -> qdisc.Netem:
    if impairment.jitter_us > _LONGEST_JITTER_US:
        raise TestbedError(f"netem cannot do a jitter of {impairment.jitter_us} us", remedy="at most 2147ms")
    burst = impairment.loss_burst
    in_bursts = burst is not None and 0 < impairment.loss < 1
    return qdisc.Netem(
        delay_ns=impairment.delay_us * 1000,
        jitter_ns=impairment.jitter_us * 1000,
        limit=limit(impairment),
        loss=0 if in_bursts else qdisc.fraction(impairment.loss),
        gilbert=_gilbert(impairment.loss, burst) if in_bursts and burst is not None else None,
        duplicate=qdisc.fraction(impairment.duplicate),
        corrupt=qdisc.fraction(impairment.corrupt),
        rate=0 if impairment.reorder else _IN_ORDER,
    )


def _gilbert(loss: float, burst: float) -> tuple[int, int]:
    """Probabilities of beginning and of ending a burst, for a share ``loss`` of packets lost in bursts of mean length
    ``burst``: E. N. Gilbert, Capacity of a burst-noise channel, BSTJ 39 (1960), with every packet of a burst lost."""
    if burst < 1:
        raise TestbedError(f"a burst of {burst:g} lost packets is none", remedy="at least 1")
    end = 1 / burst
    begin = end * loss / (1 - loss)
    if begin > 1:
        most = burst / (1 + burst)
        raise TestbedError(
            f"{loss:.1%} of packets cannot be lost in bursts of {burst:g}: between two bursts one packet passes",
            remedy=f"lose at most {most:.1%}, or make the bursts longer",
        )
    return qdisc.fraction(begin), qdisc.fraction(end)


def requests(index: int, ifname: str, wanted: Settings, present: Collection[int] = ()) -> list[Request]:
    """The netlink requests that make the three, or change those whose handles are ``present``."""
    what = f"impairment of {ifname}"
    return [
        qdisc.tbf(f"{what} (splitting)", index, SPLIT, qdisc.ROOT, wanted.split, create=SPLIT not in present),
        qdisc.netem(f"{what} (netem)", index, IMPAIR, SPLIT + 1, wanted.netem, create=IMPAIR not in present),
        qdisc.tbf(f"{what} (rate)", index, RATE, IMPAIR + 1, wanted.rate, create=RATE not in present),
    ]


Held = dict[int, qdisc.Qdisc]
"""The queueing disciplines of one interface by handle, without the kernel's own, which have none."""


def read(netlink: Netlink) -> dict[int, Held]:
    """What every interface of the socket's namespace has, by interface index; empty for those that are not named."""
    found: dict[int, Held] = defaultdict(dict)
    for item in qdisc.dump(netlink):
        if item.handle:
            found[item.index][item.handle] = item
    return found


def read_one(netlink: Netlink, index: int) -> Held:
    """What one interface has."""
    return {item.handle: item for item in qdisc.dump(netlink, index) if item.handle}


def impair(netlink: Netlink, where: str, index: int, ifname: str, impairment: Impairment, mtu: int) -> None:
    """Put ``impairment`` in force at the egress of an interface, all of it at once, and read it back.

    Whatever the interface has of ours is changed in place without losing a packet: an impairment, or a rate alone,
    whose queue (at most 50 ms) is let go first. A queueing discipline of somebody else is left alone: ApplyError.
    """
    wanted = settings(impairment, mtu)
    held = read_one(netlink, index)
    root = _our_root(where, ifname, held)
    if root is not None and IMPAIR in held:
        # A shorter limit would refuse new packets until the longer queue of before is gone.
        longest = max(wanted.netem.limit, qdisc.decode_netem(held[IMPAIR].options).limit)
        wanted = replace(wanted, netem=replace(wanted.netem, limit=longest))
    elif root is not None:
        # netem takes the place of the queue in the token bucket, with all that is in it.
        what = f"impairment of {ifname} (splitting)"
        netlink.apply(where, [qdisc.tbf(what, index, SPLIT, qdisc.ROOT, UNLIMITED, create=False)])
        one_frame = (mtu + _HEADER_ROOM) / qdisc.decode_tbf(root.options).rate
        _wait_until_empty(netlink, where, index, ifname, _DRAIN_SECONDS + one_frame)
    netlink.apply(where, requests(index, ifname, wanted, held))
    verify(where, read_one(netlink, index), ifname, impairment, mtu)


def remove(netlink: Netlink, where: str, index: int, ifname: str) -> None:
    """Take our queueing disciplines off an interface once the packets in them have passed. Others are left alone."""
    held = read_one(netlink, index)
    root = next((item for item in held.values() if item.parent == qdisc.ROOT), None)
    if root is None or (root.handle, root.kind) != (SPLIT, "tbf"):
        return
    seconds = _DRAIN_SECONDS
    if IMPAIR in held:
        before = qdisc.decode_netem(held[IMPAIR].options)
        netlink.apply(where, requests(index, ifname, settings(Impairment(), _ANY_MTU), held))
        seconds += (before.delay_ns + before.jitter_ns) / 1e9
    else:
        what = f"rate of {ifname}"
        netlink.apply(where, [qdisc.tbf(what, index, SPLIT, qdisc.ROOT, UNLIMITED, create=False)])
        seconds += _LONGEST_FRAME / qdisc.decode_tbf(root.options).rate
    _wait_until_empty(netlink, where, index, ifname, seconds)
    netlink.apply(where, [qdisc.delete(f"removal of the impairment of {ifname}", index, SPLIT)])


def _our_root(where: str, ifname: str, held: Held) -> qdisc.Qdisc | None:
    root = next((item for item in held.values() if item.parent == qdisc.ROOT), None)
    if root is not None and (root.handle, root.kind) != (SPLIT, "tbf"):
        raise ApplyError(
            f"{ifname} has a queueing discipline that is not ours: {root.kind} {root.handle >> 16:x}:",
            where=where,
            remedy=f"`tc qdisc del dev {ifname} root` in that node, if it is not needed",
        )
    return root


def _wait_until_empty(netlink: Netlink, where: str, index: int, ifname: str, seconds: float) -> None:
    """The kernel tells nobody when a queue is empty, so it is looked at every millisecond."""
    deadline = time.monotonic() + seconds
    while queued := read_one(netlink, index)[SPLIT].queued:
        if time.monotonic() > deadline:
            raise WaitTimeout(f"the queue of {ifname} to be empty", seconds, f"{queued} packets in it", where=where)
        time.sleep(0.001)


def verify(where: str, held: Held, ifname: str, impairment: Impairment, mtu: int) -> None:
    """Compare what the kernel holds with ``impairment``; ApplyError names the first difference."""
    kinds = {handle: (item.kind, item.parent) for handle, item in held.items() if handle in (SPLIT, IMPAIR, RATE)}
    wanted_kinds = {SPLIT: ("tbf", qdisc.ROOT), IMPAIR: ("netem", SPLIT + 1), RATE: ("tbf", IMPAIR + 1)}
    if kinds != wanted_kinds:
        there = ", ".join(item.kind for item in held.values()) or "none"
        raise ApplyError(f"the impairment of {ifname} is not in force; queueing disciplines: {there}", where=where)
    wanted = settings(impairment, mtu)
    found = qdisc.decode_netem(held[IMPAIR].options)
    for field in fields(found):
        want, got = getattr(wanted.netem, field.name), getattr(found, field.name)
        if got < want if field.name == "limit" else got != want:
            raise ApplyError(f"{field.name} of {ifname} reads {got} after {want} was set", where=where)
    for name, bucket, handle in (("splitting", wanted.split, SPLIT), ("rate", wanted.rate, RATE)):
        got_bucket = qdisc.decode_tbf(held[handle].options)
        # The kernel gives a burst as the time that it takes, in steps of 64 ns.
        step = 2 * qdisc.TICK_NS * bucket.rate // 10**9 + 1
        same_burst = abs(got_bucket.burst - bucket.burst) <= step
        if (got_bucket.rate, got_bucket.limit) != (bucket.rate, bucket.limit) or not same_burst:
            raise ApplyError(f"{name} of {ifname} reads {got_bucket} after {bucket} was set", where=where)


def kernel_lack() -> str:
    """Why this kernel cannot impair links by netem; empty if it can.

    Tried on the loopback interface of a network namespace that nobody else sees and that ends with the trial.
    """

    def attempt() -> None:
        namespace.unshare()
        netlink = Netlink()
        try:
            everything = Impairment(
                delay_us=2000, jitter_us=1000, loss=0.1, loss_burst=2, duplicate=0.1, corrupt=0.1, rate_bps=10**6
            )
            impair(netlink, "a namespace for trials", LOOPBACK, "lo", everything, 1500)
        finally:
            netlink.close()

    try:
        namespace.in_thread(attempt)
    except TestbedError as error:
        absent = error.what.endswith(os.strerror(errno.ENOENT))
        return "this kernel has no netem (sch_netem)" if absent else error.what
    except OSError as error:
        return str(error)
    return ""
