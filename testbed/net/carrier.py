"""Waiting until interfaces that have a carrier really send.

When the second end of a link comes up, the kernel gives the first one its carrier at once, but lets it send only once
a worker has got to it (net/core/link_watch.c): milliseconds as a rule, more on a busy machine. Until then it drops
every packet, also the one SYN that is then sent again a second later.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.errors import WaitTimeout
from testbed.net import namespace
from testbed.net.netlink import Netlink, attributes
from testbed.plan.types import End, Link

_GETLINK = 18
_LOWER_UP = 0x10000
_IFLA_OPERSTATE = 16
_OPER_UP = 6
LIMIT = 10.0
"""Seconds; the kernel itself never takes more than about one."""


def await_sending(netlink: Netlink, where: str, interfaces: Iterable[tuple[int, str]]) -> None:
    """Wait until each interface, an index and a name for messages, sends, or has no carrier.

    Asked for one interface alone, kernels since 6.8 do the worker's work before they answer (rtnl_getlink); others
    show by the operational state whether it has been done. WaitTimeout names the interface.
    """
    deadline = time.monotonic() + LIMIT
    for index, name in interfaces:
        while True:
            answer = netlink.get(_GETLINK, struct.pack("=BxHiII", 0, 0, index, 0, 0))
            (flags,) = struct.unpack_from("=8xI", answer)
            state = attributes(answer, 16)[_IFLA_OPERSTATE][0]
            if not flags & _LOWER_UP or state == _OPER_UP:
                break
            if time.monotonic() > deadline:
                raise WaitTimeout(f"{name} to send", LIMIT, f"operational state {state} (RFC 2863)", where=where)
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
