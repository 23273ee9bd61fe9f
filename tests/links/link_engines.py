"""The engines that can impair a link, as the tests see them: all a test needs to try the same thing with each.

An engine makes a link's two interfaces with the impairment in force, and changes it while traffic flows. Everything
else about a link (addresses, neighbours) is the same whatever the engine.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from testbed.lab import ownership
from testbed.net import netem, qdisc, readback, requests
from testbed.net.netlink import Netlink, in_namespace
from testbed.net.wire import engine as wire
from testbed.net.wire.control import Wire
from testbed.net.wire.settings import settings_of
from testbed.plan.types import End, Impairment, Link


class LinkEngine(Protocol):
    """One way to impair links."""

    name: str
    interruption: float
    """Seconds for which a plain link may carry nothing when it is impaired for the first time, live."""

    def lack(self) -> str:
        """Why it does not work on this machine; empty if it does."""

    def make(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        """Make the interfaces of both ends in the nodes' namespaces, down and without addresses, and impair them."""

    def change(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        """Put the impairments of ``link`` in force on the link that ``make`` has made."""

    def close(self) -> None:
        """End what runs for the links."""


class NetemEngine:
    """The kernel's netem on both ends of a veth pair."""

    name = "netem"
    interruption = 0.0

    def lack(self) -> str:
        return netem.kernel_lack()

    def make(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        opened = [os.open(namespaces[end.node], os.O_RDONLY | os.O_CLOEXEC) for end in (link.a, link.b)]
        try:
            in_namespace(
                namespaces[link.a.node], lambda netlink: netlink.apply(link.name, [requests.veth(link, *opened)])
            )
        finally:
            for descriptor in opened:
                os.close(descriptor)
        for end, outgoing in ((link.a, link.forward), (link.b, link.backward)):
            if outgoing.needs_engine:
                _impair(link, end.node, namespaces, outgoing)
            elif outgoing.rate_bps is not None:
                _only_rate(link, end.node, namespaces, outgoing.rate_bps)

    def change(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        _impair(link, link.a.node, namespaces, link.forward)
        _impair(link, link.b.node, namespaces, link.backward)

    def close(self) -> None:
        pass


class WireEngine:
    """The userspace wire between two TAP devices."""

    name = "wire"
    interruption = 0.0

    def __init__(self) -> None:
        self._id = secrets.token_hex(4)
        self._folder: Path | None = None

    def lack(self) -> str:
        return "" if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"

    def make(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tbwire-", dir="/var/tmp"))
        for end, outgoing in ((link.a, link.forward), (link.b, link.backward)):
            in_namespace(namespaces[end.node], partial(_make_tap, end, link.mtu))
            if outgoing.rate_bps is not None:
                _only_rate(link, end.node, namespaces, outgoing.rate_bps)
        wire.start(self._folder, self._id, [wire.wire_link(link, namespaces.__getitem__, 0)])

    def change(self, link: Link, namespaces: Mapping[str, Path]) -> None:
        assert self._folder
        with Wire(self._folder) as connection:
            both = settings_of(link.forward), settings_of(link.backward)
            connection.change(link.name, forward=both[0].plain(), backward=both[1].plain())
        for end, outgoing in ((link.a, link.forward), (link.b, link.backward)):
            in_namespace(namespaces[end.node], partial(_set_rate, end, link.mtu, outgoing.rate_bps))

    def close(self) -> None:
        ownership.end_processes(self._id)
        if self._folder:
            shutil.rmtree(self._folder)


def _make_tap(end: End, mtu: int, netlink: Netlink) -> None:
    wire.make_end(end)
    index = readback.devices(netlink)[end.ifname].index
    netlink.apply(end.node, [wire.end_settings(index, end, mtu)])


def _set_rate(end: End, mtu: int, rate_bps: int | None, netlink: Netlink) -> None:
    index = readback.devices(netlink)[end.ifname].index
    there = any(item.index == index and item.handle == requests.QDISC_HANDLE for item in qdisc.dump(netlink))
    bucket = netem.rate_bucket(rate_bps, mtu)
    if rate_bps is not None or there:
        netlink.apply(
            end.node,
            [qdisc.tbf(f"rate of {end.interface}", index, requests.QDISC_HANDLE, qdisc.ROOT, bucket, create=not there)],
        )


ENGINES: dict[str, Callable[[], LinkEngine]] = {"netem": NetemEngine, "wire": WireEngine}
"""By name. Whoever makes an engine adds it here."""


def _impair(link: Link, node: str, namespaces: Mapping[str, Path], outgoing: Impairment) -> None:
    end = link.end(node)

    def work(netlink: Netlink) -> None:
        index = readback.devices(netlink)[end.ifname].index
        netem.impair(netlink, f"node {node}", index, end.interface, outgoing, link.mtu)

    in_namespace(namespaces[node], work)


def _only_rate(link: Link, node: str, namespaces: Mapping[str, Path], rate_bps: int) -> None:
    end = link.end(node)

    def work(netlink: Netlink) -> None:
        index = readback.devices(netlink)[end.ifname].index
        netlink.apply(f"node {node}", [requests.tbf(index, rate_bps, link.mtu, end.interface)])

    in_namespace(namespaces[node], work)
