"""Waiting until interfaces that have a carrier really send.

When the second end of a link comes up, the kernel gives the first one its carrier at once, but lets it send only once
a worker has got to it (net/core/link_watch.c): milliseconds as a rule, more on a busy machine. Until then it drops
every packet, also the one SYN that is then sent again a second later.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.errors import WaitTimeout
from testbed.net import namespace, readback
from testbed.net.netlink import Netlink
from testbed.plan.types import End, Link

_OPER_UP = 6
LIMIT = 10.0
"""Seconds; the kernel itself never takes more than about one."""


def await_sending(netlink: Netlink, where: str, interfaces: Iterable[tuple[int, str]]) -> None:
    """Wait until each interface, an index and a name for messages, sends, or has no carrier.

    Kernels since 6.8 do the worker's work before they answer (``readback.device``); others show by the operational
    state whether it has been done. WaitTimeout names the interface.
    """
    deadline = time.monotonic() + LIMIT
    for index, name in interfaces:
        while True:
            device = readback.device(netlink, index)
            if not device.carrier or device.operational == _OPER_UP:
                break
            if time.monotonic() > deadline:
                seen = f"operational state {device.operational} (RFC 2863)"
                raise WaitTimeout(f"{name} to send", LIMIT, seen, where=where)
            time.sleep(0.001)


def await_links(links: Iterable[Link], path_of: Callable[[str], Path]) -> None:
    """Likewise for both ends of ``links``. ``path_of`` gives each node's namespace."""
    ends: dict[str, list[End]] = {}
    for link in links:
        for end in (link.a, link.b):
            ends.setdefault(end.node, []).append(end)
    namespace.in_thread(lambda: _await_ends(ends, path_of))


def _await_ends(ends: dict[str, list[End]], path_of: Callable[[str], Path]) -> None:
    for node, here in ends.items():
        namespace.enter(path_of(node))
        netlink = Netlink()
        try:
            await_sending(netlink, f"node {node}", [(socket.if_nametoindex(end.ifname), end.interface) for end in here])
        finally:
            netlink.close()
