"""Changing the links of a running lab: find one, set it up or down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from testbed.errors import ApplyError, TestbedError
from testbed.net import namespace, readback, requests
from testbed.net.netlink import Netlink, Request
from testbed.plan.types import End, Link

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

T = TypeVar("T")


def find(lab: Lab, a: str, b: str) -> Link:
    """The link between two endpoints, each ``node`` or ``node:interface``.

    TestbedError if there is none, or several and the interfaces do not tell them apart.
    """
    ends = [endpoint.partition(":") for endpoint in (a, b)]
    for name, _, _ in ends:
        lab.node(name)

    def at(link: Link, end: tuple[str, str, str]) -> bool:
        name, _, interface = end
        return any(side.node == name and interface in ("", side.interface, side.ifname) for side in (link.a, link.b))

    found = [link for link in lab.plan.links_of(ends[0][0]) if at(link, ends[0]) and at(link, ends[1])]
    if len(found) == 1:
        return found[0]
    names = ", ".join(link.name for link in found or lab.plan.links_of(ends[0][0]))
    if found:
        raise TestbedError(f"{a} and {b} are joined by several links", remedy=f"say which interface: {names}")
    raise TestbedError(f"there is no link between {a} and {b}", remedy=f"links of {ends[0][0]}: {names or 'none'}")


def in_node(lab: Lab, node: str, work: Callable[[Netlink], T]) -> T:
    """Run ``work`` with a netlink socket inside a node's namespace."""

    def run() -> T:
        netlink = Netlink()
        try:
            return work(netlink)
        finally:
            netlink.close()

    return namespace.inside(lab.namespace(node), run)


def device(lab: Lab, end: End) -> readback.Device:
    """The interface as the kernel has it now. ApplyError if it is gone."""
    found = in_node(lab, end.node, readback.devices).get(end.ifname)
    if found is None:
        raise ApplyError(f"interface {end.interface} is gone", where=f"node {end.node}")
    return found


def set_admin_state(lab: Lab, end: End, *, up: bool) -> None:
    """Set one end of a link up or down and read it back.

    The kernel drops an interface's routes and permanent neighbours with its carrier; those of the plan that lead
    through it are put back when it comes up.
    """

    def change(netlink: Netlink) -> None:
        item = readback.devices(netlink).get(end.ifname)
        if item is None:
            raise ApplyError(f"interface {end.interface} is gone", where=f"node {end.node}")
        request = requests.up if up else requests.down
        netlink.apply(f"node {end.node}", [request(item.index, end.interface)])
        if readback.devices(netlink)[end.ifname].up != up:
            raise ApplyError(f"interface {end.interface} did not go {'up' if up else 'down'}", where=end.node)
        if up:
            netlink.apply(f"node {end.node}", _missing(lab, end, item.index, netlink))

    in_node(lab, end.node, change)


def _missing(lab: Lab, end: End, index: int, netlink: Netlink) -> list[Request]:
    node = lab.plan.node(end.node)
    addresses = readback.addresses(netlink)
    routes = {(to, via) for to, via, oif in readback.routes(netlink) if oif == index}
    neighbours = {address for oif, address, _ in readback.permanent_neighbours(netlink) if oif == index}
    return [
        *(requests.address(index, a, end.interface) for a in end.addresses if (index, a) not in addresses),
        *(
            requests.neighbour(index, n)
            for n in node.neighbours
            if n.ifname == end.ifname and n.address not in neighbours
        ),
        *(
            requests.route(index, r)
            for r in node.routes
            if r.ifname == end.ifname and (r.destination, r.via) not in routes
        ),
    ]
