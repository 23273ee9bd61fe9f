"""Which engine impairs links, and what that means for the interfaces at their ends.

``netem`` is the kernel's and works on veths; ``wire`` is ours, between two TAP devices, for kernels without netem. A
link that is only limited in rate, or not impaired at all, is a veth whatever the engine.
"""

from __future__ import annotations

import os
from typing import Literal, cast, get_args

from testbed.errors import ApplyError, PreflightError, TestbedError
from testbed.net import netem, qdisc, requests
from testbed.net.netlink import Netlink, Request
from testbed.plan.types import End, Impairment, Link

EngineName = Literal["netem", "wire"]


def check_name(name: str | None) -> EngineName | None:
    """``name`` as an engine's, None as itself; TestbedError otherwise."""
    if name is not None and name not in get_args(EngineName):
        raise TestbedError(f"there is no engine {name!r}", remedy=f"use one of {', '.join(get_args(EngineName))}")
    return cast("EngineName | None", name)


def lack(engine: EngineName) -> str:
    """Why this machine cannot run ``engine``; empty if it can."""
    if engine == "netem":
        return netem.kernel_lack()
    return "" if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"


def choose(wanted: EngineName | None) -> EngineName:
    """``wanted``, or netem where the kernel has it and the wire elsewhere. PreflightError if that cannot work here."""
    reasons = []
    for engine in (wanted,) if wanted else get_args(EngineName):
        reason = lack(engine)
        if not reason:
            return cast("EngineName", engine)
        reasons.append(f"{engine}: {reason}")
    raise PreflightError(
        f"links with delay, jitter or loss cannot be made here ({'; '.join(reasons)})",
        remedy="use a kernel with sch_netem, or one with TUN for the userspace wire",
    )


def is_wired(link: Link, engine: EngineName | None) -> bool:
    """Whether a link as the plan has it is carried by the userspace wire."""
    return engine == "wire" and (link.forward.needs_engine or link.backward.needs_engine)


def egress(index: int, end: End, outgoing: Impairment, mtu: int, engine: EngineName | None) -> list[Request]:
    """What makes a new interface treat the packets that leave it as ``outgoing`` says, as far as the kernel does it."""
    if engine == "netem" and outgoing.needs_engine:
        return netem.requests(index, end.interface, netem.settings(outgoing, mtu))
    if outgoing.rate_bps is not None:
        return [requests.tbf(index, outgoing.rate_bps, mtu, end.interface)]
    return []


def verify_egress(
    where: str, held: netem.Held, end: End, outgoing: Impairment, mtu: int, engine: EngineName | None
) -> None:
    """Compare the queueing disciplines of an interface with ``outgoing``; ApplyError names what differs."""
    if engine == "netem" and (outgoing.needs_engine or netem.IMPAIR in held):
        netem.verify(where, held, end.interface, outgoing, mtu)
        return
    root = held.get(netem.SPLIT)
    rate = qdisc.decode_tbf(root.options).rate if root is not None and root.kind == "tbf" else None
    if rate == netem.UNLIMITED.rate:
        rate = None
    wanted = None if outgoing.rate_bps is None else outgoing.rate_bps // 8
    if rate != wanted:
        seen = ", ".join(item.kind for item in held.values()) or "no queueing discipline"
        raise ApplyError(
            f"rate of {end.interface} reads {rate} bytes/s ({seen}) after {wanted} was set",
            where=where,
        )


def set_egress(
    netlink: Netlink, where: str, index: int, end: End, outgoing: Impairment, mtu: int, *, wired: bool
) -> None:
    """Change what a living interface does to the packets that leave it, without losing any, and read it back.

    ``wired``: all but the rate is the wire's business.
    """
    held = netem.read_one(netlink, index)
    if not wired and (outgoing.needs_engine or netem.IMPAIR in held):
        netem.impair(netlink, where, index, end.interface, outgoing, mtu)
        return
    if outgoing.rate_bps is None and netem.SPLIT not in held:
        return
    bucket = netem.rate_bucket(outgoing.rate_bps, mtu)
    what = f"rate of {end.interface}"
    create = netem.SPLIT not in held
    netlink.apply(where, [qdisc.tbf(what, index, netem.SPLIT, qdisc.ROOT, bucket, create=create)])
    verify_egress(where, netem.read_one(netlink, index), end, outgoing, mtu, None)
