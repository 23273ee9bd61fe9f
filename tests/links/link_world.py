"""A link between two namespaces, ``a`` and ``b``, that one engine impairs: what every test of links stands on."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Interface
from pathlib import Path

from link_engines import LinkEngine, in_namespace

from testbed.net import namespace, readback, requests
from testbed.net.netlink import Netlink
from testbed.plan.types import End, Impairment, Link, Neighbour

IFNAME = "eth0"


class ImpairedLink:
    """The link as it is now, and its two namespaces."""

    def __init__(self, engine: LinkEngine, link: Link, namespaces: dict[str, Path]) -> None:
        self.engine = engine
        self.link = link
        self.namespaces = namespaces

    def address(self, node: str) -> str:
        """The address of an end."""
        return str(self.link.end(node).addresses[0].ip)

    def change(self, *, forward: Impairment | None = None, backward: Impairment | None = None) -> None:
        """Put other impairments in force while the link is in use; a direction that is not given stays as it is."""
        update = {"forward": forward or self.link.forward, "backward": backward or self.link.backward}
        link = self.link.model_copy(update=update)
        self.engine.change(link, self.namespaces)
        self.link = link

    def run(self, node: str, argv: Sequence[str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in a node's namespace."""
        return namespace.inside(
            self.namespaces[node],
            lambda: subprocess.run(argv, capture_output=True, text=True, timeout=60, check=check),
        )


@contextmanager
def impaired_link(
    engine: LinkEngine,
    forward: Impairment = Impairment(),  # noqa: B008 - immutable
    backward: Impairment = Impairment(),  # noqa: B008
    mtu: int = 1500,
) -> Iterator[ImpairedLink]:
    """A link with these impairments from ``a`` to ``b`` and back, ready for traffic; gone afterwards."""
    tag = secrets.token_hex(4)
    namespaces = {node: namespace.NETNS_FOLDER / f"tbtest-{tag}-{node}" for node in "ab"}
    ends = [
        End(node=node, interface=IFNAME, ifname=IFNAME, mac=f"02:00:00:00:00:0{number}", addresses=(address,))
        for number, node, address in (
            (1, "a", IPv4Interface("10.9.0.0/31")),
            (2, "b", IPv4Interface("10.9.0.1/31")),
        )
    ]
    link = Link(a=ends[0], b=ends[1], mtu=mtu, forward=forward, backward=backward)
    try:
        for path in namespaces.values():
            namespace.in_thread(partial(_make_namespace, path))
        engine.make(link, namespaces)
        for node in namespaces:
            _configure(link, node, namespaces[node])
        yield ImpairedLink(engine, link, namespaces)
    finally:
        engine.close()
        for path in namespaces.values():
            namespace.remove(path)


def _make_namespace(path: Path) -> None:
    namespace.unshare()
    namespace.keep_current(path)


def _configure(link: Link, node: str, where: Path) -> None:
    end, peer = link.end(node), link.peer(node)

    def work(netlink: Netlink) -> None:
        # without IPv6 nothing is sent that no test has sent
        for key in ("all", "default"):
            path = Path("/proc/sys/net/ipv6/conf", key, "disable_ipv6")
            if path.exists():
                path.write_text("1")
        index = readback.devices(netlink)[IFNAME].index
        entry = Neighbour(address=peer.addresses[0].ip, mac=peer.mac, ifname=IFNAME)
        todo = [requests.up(requests.LOOPBACK, "lo"), requests.address(index, end.addresses[0], IFNAME)]
        netlink.apply(node, [*todo, requests.up(index, IFNAME), requests.neighbour(index, entry)])

    in_namespace(where, work)
