"""Changing the links of a running lab: find one, set it up or down, change its MTU and what it does to packets."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.errors import ApplyError, TestbedError
from testbed.lab import revival
from testbed.lab.state import write_atomically
from testbed.net import build, carrier, impair, netem, readback, requests
from testbed.net.impair import EngineName
from testbed.net.netlink import Netlink, Request, in_namespace
from testbed.net.wire import engine as wire
from testbed.net.wire.settings import settings_of
from testbed.net.wire.state import STATE, load
from testbed.plan.types import End, Impairment, Link, Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

T = TypeVar("T")

_CHANGES = "links.json"
"""In the lab's folder: what links do to packets, where it is not what the plan says."""


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
    return in_namespace(lab.namespace(node), work)


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
    through it are put back when it comes up. Once both ends are up, the link carries when this returns.
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
    if up:
        carrier.await_links([link for link in lab.plan.links_of(end.node) if link.end(end.node) == end], lab.namespace)


def missing(lab: Lab, end: End) -> list[str]:
    """What the plan gives to one end of a link, and the kernel does not have: addresses, neighbours, routes of every
    table, and the node's rules."""
    return [request.what for request in in_node(lab, end.node, lambda netlink: _missing(lab, end, netlink))]


def _missing(lab: Lab, end: End, netlink: Netlink) -> list[Request]:
    node = lab.plan.node(end.node)
    index = _device(end, netlink).index
    addresses = readback.addresses(netlink)
    routes = {(to, via, table) for to, via, oif, table in readback.routes(netlink) if oif == index}
    rules = readback.rules(netlink) if node.rules else []
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
            if r.ifname == end.ifname and (r.destination, r.via, r.table) not in routes
        ),
        *(requests.rule(rule) for rule in node.rules if rule not in rules),
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


def current(lab: Lab) -> Plan:
    """The lab's plan with its links as they have been changed since."""
    changed = _changed(lab)
    links = tuple(link.model_copy(update=changed.get(link.name, {})) for link in lab.plan.links)
    return lab.plan.model_copy(update={"links": links})


def impairment(lab: Lab, link: Link) -> tuple[Impairment, Impairment]:
    """What a link does to packets now, from its first to its second end and back."""
    now = _changed(lab).get(link.name, {"forward": link.forward, "backward": link.backward})
    return now["forward"], now["backward"]


def change(lab: Lab, link: Link, forward: Impairment | None = None, backward: Impairment | None = None) -> None:
    """Make a link do something else to the packets of each direction that is given, and read it back.

    No packet is lost by it, with one exception: a plain link that gets a delay or the like for the first time, on a
    kernel without netem, is exchanged for one that the wire carries, and is interrupted for some milliseconds; the
    event says for how long. PreflightError where no engine works.
    """
    before = impairment(lab, link)
    wanted = (forward or before[0], backward or before[1])
    whole = _is_whole(lab, link)
    if wanted == before and whole:
        return
    after = link.model_copy(update={"forward": wanted[0], "backward": wanted[1]})
    needs = wanted[0].needs_engine or wanted[1].needs_engine
    engine = lab.impair_engine(needed=needs)
    wired = link.name in _wired(lab)
    # Written first: if we are killed meanwhile, whoever changes the link back does not take it for unchanged.
    _remember(lab, after)
    interrupted = None
    if (needs and engine == "wire" and not wired) or not whole:
        interrupted = _exchange(lab, after, engine)
    else:
        if wired:
            both = settings_of(wanted[0]), settings_of(wanted[1])
            with revival.wire(lab.folder) as connection:
                connection.change(link.name, forward=both[0].plain(), backward=both[1].plain())
        for end, old, new in ((link.a, before[0], wanted[0]), (link.b, before[1], wanted[1])):
            if old.rate_bps != new.rate_bps or (old != new and not wired):
                in_node(lab, end.node, partial(_set_egress, end, new, link.mtu, wired))
    detail: dict[str, Any] = {} if interrupted is None else {"interrupted": interrupted}
    lab.event("link", link=link.name, forward=plain(wanted[0]), backward=plain(wanted[1]), **detail)


def verify(lab: Lab, link: Link) -> None:
    """Read back that a link does what ``impairment`` says. ApplyError names what differs."""
    now = impairment(lab, link)
    wired = link.name in _wired(lab)
    for end, outgoing in ((link.a, now[0]), (link.b, now[1])):
        where = f"node {end.node}"
        index = device(lab, end).index
        held = in_node(lab, end.node, partial(netem.read_one, index=index))
        impair.verify_egress(where, held, end, outgoing, link.mtu, None if wired else lab.record.impair)
    if wired:
        with revival.wire(lab.folder) as connection:
            state = connection.links()[link.name]
        for direction, carried, outgoing in (("there", state.forward, now[0]), ("back", state.backward, now[1])):
            if carried != settings_of(outgoing):
                raise ApplyError(f"the wire carries {link.name} {direction} with {carried}, not {outgoing}")


def plain(impairment: Impairment) -> dict[str, Any]:
    """An impairment as plain data, without what it leaves alone."""
    return impairment.model_dump(exclude_defaults=True)


def rewire(lab: Lab, node: str, pid: int) -> None:
    """Give a node its links again, as they are now, after its namespace went; ``pid`` has made the new one."""
    plan = current(lab)
    engine = lab.record.impair
    build.rewire(plan, plan.node(node), lab.namespace, pid, engine)
    before = _wired(lab)
    for link in plan.links_of(node):
        if impair.is_wired(link, engine):
            _carry(lab, link)
        elif link.name in before:
            with revival.wire(lab.folder) as connection:
                connection.remove(link.name)


def _set_egress(end: End, outgoing: Impairment, mtu: int, wired: bool, netlink: Netlink) -> None:
    index = _device(end, netlink).index
    impair.set_egress(netlink, f"node {end.node}", index, end, outgoing, mtu, wired=wired)


def _is_whole(lab: Lab, link: Link) -> bool:
    """Whether both interfaces are there and joined; not so if an exchange was broken off."""
    ends = [in_node(lab, end.node, readback.devices).get(end.ifname) for end in (link.a, link.b)]
    if None in ends:
        return False
    joined = all(end.carrier for end in ends if end)
    return joined or not all(end.up for end in ends if end) or link.name in _wired(lab)


def _exchange(lab: Lab, link: Link, engine: EngineName | None) -> float:
    """Make a link anew, as a veth or carried by the wire; seconds for which it carried nothing."""
    plan = current(lab)
    wired = impair.is_wired(link, engine)
    if wired:
        with (lab.folder / f".{STATE}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # others may need it for the first time at the same moment
            if not (lab.folder / STATE).exists():
                wire.start(lab.folder, lab.id, [])
    before = time.monotonic()
    build.relink(plan, link, lab.namespace, engine)
    if wired:
        _carry(lab, link)
    return time.monotonic() - before


def _carry(lab: Lab, link: Link) -> None:
    with revival.wire(lab.folder) as connection:
        connection.add(wire.wire_link(link, lab.namespace, lab.plan.seed))
    carrier.await_links([link], lab.namespace)


def _wired(lab: Lab) -> set[str]:
    """Names of the links that the lab's wire carries."""
    try:
        return set(load(lab.folder).links)
    except FileNotFoundError:
        return set()  # no wire has been started


def _changed(lab: Lab) -> dict[str, dict[str, Impairment]]:
    try:
        data = json.loads((lab.folder / _CHANGES).read_text())
    except FileNotFoundError:
        return {}
    return {
        name: {direction: Impairment.model_validate(value) for direction, value in both.items()}
        for name, both in data.items()
    }


def _remember(lab: Lab, link: Link) -> None:
    with (lab.folder / f".{_CHANGES}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others may change other links at the same moment
        changed = _changed(lab)
        changed[link.name] = {"forward": link.forward, "backward": link.backward}
        data = {name: {key: value.model_dump() for key, value in both.items()} for name, both in changed.items()}
        write_atomically(lab.folder / _CHANGES, json.dumps(data))
