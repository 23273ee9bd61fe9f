"""Changing the links of a running lab: find one, set it up or down, change its MTU and what it does to packets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from testbed.errors import ApplyError, TestbedError
from testbed.net import namespace, netem, qdisc, readback, requests
from testbed.net.netlink import Netlink, Request
from testbed.plan.types import End, Impairment, Link, Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

T = TypeVar("T")


def find(lab: Lab, a: str, b: str) -> Link:
    """The link between two endpoints, each ``node`` or ``node:interface``.

    TestbedError if there is none, or several and the interfaces do not tell them apart.
    """
    for endpoint in (a, b):
        lab.node(endpoint.partition(":")[0])
    return find_in(lab.plan, a, b)


def find_in(plan: Plan, a: str, b: str) -> Link:
    """As ``find``, in a plan whose nodes the endpoints name."""
    ends = [endpoint.partition(":") for endpoint in (a, b)]

    def at(link: Link, end: tuple[str, str, str]) -> bool:
        name, _, interface = end
        return any(side.node == name and interface in ("", side.interface, side.ifname) for side in (link.a, link.b))

    found = [link for link in plan.links_of(ends[0][0]) if at(link, ends[0]) and at(link, ends[1])]
    if len(found) == 1 and a != b:
        return found[0]
    names = ", ".join(link.name for link in found or plan.links_of(ends[0][0]))
    if found and a != b:
        raise TestbedError(f"{a} and {b} are joined by several links", remedy=f"say which interface: {names}")
    raise TestbedError(f"there is no link between {a} and {b}", remedy=f"links of {ends[0][0]}: {names or 'none'}")


def end_at(link: Link, endpoint: str) -> End:
    """The end of ``link`` that an endpoint names."""
    return link.end(endpoint.partition(":")[0])


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
    return in_node(lab, end.node, lambda netlink: _device(end, netlink))


def _device(end: End, netlink: Netlink) -> readback.Device:
    found = readback.devices(netlink).get(end.ifname)
    if found is None:
        raise ApplyError(f"interface {end.interface} is gone", where=f"node {end.node}")
    return found


def set_admin_state(lab: Lab, end: End, *, up: bool) -> None:
    """Set one end of a link up or down and read it back.

    The kernel drops an interface's routes and permanent neighbours with its carrier; those of the plan that lead
    through it are put back when it comes up.
    """

    def change(netlink: Netlink) -> None:
        index = _device(end, netlink).index
        request = requests.up if up else requests.down
        netlink.apply(f"node {end.node}", [request(index, end.interface)])
        if _device(end, netlink).up != up:
            raise ApplyError(f"interface {end.interface} did not go {'up' if up else 'down'}", where=end.node)
        if up:
            netlink.apply(f"node {end.node}", _missing(lab, end, netlink))

    in_node(lab, end.node, change)


def missing(lab: Lab, end: End) -> list[str]:
    """What the plan gives to one end of a link, and the kernel does not have: addresses, neighbours, routes."""
    return [request.what for request in in_node(lab, end.node, lambda netlink: _missing(lab, end, netlink))]


def _missing(lab: Lab, end: End, netlink: Netlink) -> list[Request]:
    node = lab.plan.node(end.node)
    index = _device(end, netlink).index
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


def set_mtu(lab: Lab, end: End, mtu: int) -> None:
    """Set the largest packet of one end of a link, bytes."""
    in_node(
        lab,
        end.node,
        lambda netlink: netlink.apply(
            f"node {end.node}", [requests.mtu(_device(end, netlink).index, end.interface, mtu)]
        ),
    )


def impairment(lab: Lab, link: Link) -> tuple[Impairment, Impairment]:
    """What a link does to packets now, from its first to its second end and back; the rates are the kernel's."""
    return (
        link.forward.model_copy(update={"rate_bps": _rate(lab, link.a)}),
        link.backward.model_copy(update={"rate_bps": _rate(lab, link.b)}),
    )


def change(lab: Lab, link: Link, forward: Impairment | None = None, backward: Impairment | None = None) -> None:
    """Make a link do something else to the packets of each direction that is given, without losing any of them.

    TestbedError for what needs an impairment engine.
    """
    now = impairment(lab, link)
    for end, present, wanted in ((link.a, now[0], forward), (link.b, now[1], backward)):
        if wanted is None or wanted == present:
            continue
        if wanted.model_copy(update={"rate_bps": present.rate_bps}) != present:
            raise TestbedError(
                f"link {link.name}: only the rate of a running link can be changed",
                remedy="an impairment engine is needed for delay, jitter, loss and the like",
            )
        _set_rate(lab, end, link.mtu, wanted.rate_bps)


def _rate(lab: Lab, end: End) -> int | None:
    """The rate at which an end sends, bits per second; None: not limited."""
    found = in_node(lab, end.node, lambda netlink: netem.read(netlink)[_device(end, netlink).index])
    root = found.get(netem.SPLIT)
    return qdisc.decode_tbf(root.options).rate * 8 if root is not None and root.kind == "tbf" else None


def _set_rate(lab: Lab, end: End, mtu: int, rate_bps: int | None) -> None:
    def work(netlink: Netlink) -> None:
        index, where = _device(end, netlink).index, f"node {end.node}"
        if rate_bps is None:
            netem.remove(netlink, where, index, end.interface)
            return
        present = netem.SPLIT in netem.read(netlink)[index]
        bucket = netem.rate_bucket(rate_bps, mtu)
        what = f"rate of {end.interface}"
        netlink.apply(where, [qdisc.tbf(what, index, netem.SPLIT, qdisc.ROOT, bucket, create=not present)])

    in_node(lab, end.node, work)
