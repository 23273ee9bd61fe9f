"""The network of a whole plan: namespaces, links, addresses, routes, rates; applied in batches and read back.

Data goes from the plan to the kernel here and nowhere else. Nothing in this module touches the caller's namespace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import ApplyError
from testbed.net import carrier, impair, namespace, netem, readback, requests, ruleset, sysctl
from testbed.net.impair import EngineName, is_wired
from testbed.net.netlink import Netlink, Request
from testbed.net.wire import engine as wire
from testbed.plan.types import End, Impairment, Interface, Link, Node, Plan, Rule

BRIDGE = "br0"
"""The bridge inside a switch's namespace."""


@dataclass
class _Opened:
    """A namespace while it is being furnished: a file descriptor to name it by, and a socket inside it."""

    fd: int
    netlink: Netlink
    index: dict[str, int]


def build(
    plan: Plan, path_of: Callable[[str], Path], ready: Mapping[str, int], engine: EngineName | None = None
) -> None:
    """Make the network of ``plan``. ``path_of`` gives the name to keep each node's namespace by; ``ready`` names the
    nodes whose namespace a process (by pid) has made already, such as a container's; ``engine`` impairs links. Those
    that the wire is to carry get their interfaces here, and no carrier before the wire is started.

    Raises ApplyError naming the node and the item that the kernel refused or that reads back different.
    """
    namespace.in_thread(lambda: _build(plan, path_of, ready, engine))


def _build(plan: Plan, path_of: Callable[[str], Path], ready: Mapping[str, int], engine: EngineName | None) -> None:
    opened: dict[str, _Opened] = {}
    try:
        for node in plan.nodes:
            opened[node.name] = _open(plan, node, path_of(node.name), ready.get(node.name))
        _make_bridges(plan, opened)
        _make_links(plan.links, opened, path_of, engine)
        for node in plan.nodes:
            _configure(plan, node, opened[node.name], engine)
            _furnish(node, path_of(node.name))
        for node in plan.nodes:
            verify(plan, node, opened[node.name].netlink, engine)
    finally:
        for item in opened.values():
            item.netlink.close()
            os.close(item.fd)


def rewire(plan: Plan, node: Node, path_of: Callable[[str], Path], pid: int, engine: EngineName | None = None) -> None:
    """Give a node its links again after its namespace went, as a container's does with its first process.

    ``pid`` has made the new one. The far ends of the links are made anew too. Raises ApplyError as ``build`` does.
    """
    namespace.in_thread(lambda: _rewire(plan, node, path_of, pid, engine))


def relink(plan: Plan, link: Link, path_of: Callable[[str], Path], engine: EngineName | None = None) -> None:
    """Make one link of ``plan`` anew between namespaces that are there. Raises ApplyError as ``build`` does."""
    namespace.in_thread(lambda: _relink(plan, [link], {}, path_of, engine))


def _rewire(plan: Plan, node: Node, path_of: Callable[[str], Path], pid: int, engine: EngineName | None) -> None:
    namespace.remove(path_of(node.name))
    opened = {node.name: _open(plan, node, path_of(node.name), pid)}
    _relink(plan, plan.links_of(node.name), opened, path_of, engine)


def _relink(
    plan: Plan,
    links: Sequence[Link],
    opened: dict[str, _Opened],
    path_of: Callable[[str], Path],
    engine: EngineName | None,
) -> None:
    """Remove what is left of ``links`` and make them again; ``opened`` are namespaces that are new, and are closed."""
    fresh = set(opened)
    try:
        for end in (end for link in links for end in (link.a, link.b)):
            if end.node not in opened:
                opened[end.node] = _open_present(path_of(end.node))
            _remove(opened[end.node], end)
        _make_links(links, opened, path_of, engine)
        for name, item in opened.items():
            ends = {end.ifname for link in links for end in (link.a, link.b) if end.node == name}
            _configure(plan, plan.node(name), item, engine, None if name in fresh else ends)
            _furnish(plan.node(name), path_of(name), None if name in fresh else ends)
        for name in opened:
            # the rest of a node that was there may be otherwise just now, such as with another link down
            ends = {end.ifname for link in links for end in (link.a, link.b) if end.node == name}
            verify(plan, plan.node(name), opened[name].netlink, engine, None if name in fresh else ends)
    finally:
        for item in opened.values():
            item.netlink.close()
            os.close(item.fd)


def _remove(item: _Opened, end: End) -> None:
    """Remove an interface if it is there; the kernel may be at it, since the other end's namespace has gone."""
    if (device := readback.devices(item.netlink).get(end.ifname)) is None:
        return
    try:
        item.netlink.apply(f"node {end.node}", [requests.no_link(device.index, end.interface)])
    except ApplyError:
        if end.ifname in readback.devices(item.netlink):
            raise


def _open_present(path: Path) -> _Opened:
    namespace.enter(path)
    return _Opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC), Netlink(), {})


def _open(plan: Plan, node: Node, path: Path, pid: int | None) -> _Opened:
    try:
        if pid is None:
            namespace.unshare()
            namespace.keep_current(path)
        else:
            namespace.adopt(pid, path)
            namespace.enter(path)
        sysctl.write(node, sysctl.of_node(plan, node))
        return _Opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC), Netlink(), {})
    except OSError as error:
        raise ApplyError(f"cannot make the namespace {path}: {error}", where=f"node {node.name}") from error


def _make_bridges(plan: Plan, opened: Mapping[str, _Opened]) -> None:
    for node in plan.nodes:
        if node.kind == "switch":
            opened[node.name].netlink.apply(f"node {node.name}", [requests.bridge(BRIDGE)])


def _make_links(
    links: Sequence[Link], opened: Mapping[str, _Opened], path_of: Callable[[str], Path], engine: EngineName | None
) -> None:
    """Make the interfaces of ``links``, still down, and note the index of every interface."""
    veths: dict[str, list[Request]] = {}
    taps: dict[str, list[tuple[End, int]]] = {}
    for link in links:
        if is_wired(link, engine):
            for end in (link.a, link.b):
                taps.setdefault(end.node, []).append((end, link.mtu))
        else:
            request = requests.veth(link, opened[link.a.node].fd, opened[link.b.node].fd)
            veths.setdefault(link.a.node, []).append(request)
    for name, items in veths.items():
        opened[name].netlink.apply(f"node {name}", items)
    for name, ends in taps.items():
        namespace.enter(path_of(name))
        for end, _ in ends:
            wire.make_end(end)
    for name, item in opened.items():
        item.index = {ifname: device.index for ifname, device in readback.devices(item.netlink).items()}
        settings = [wire.end_settings(item.index[end.ifname], end, mtu) for end, mtu in taps.get(name, ())]
        item.netlink.apply(f"node {name}", settings)


def _configure(
    plan: Plan, node: Node, item: _Opened, engine: EngineName | None, ends: Collection[str] | None = None
) -> None:
    """Furnish a node's namespace; ``ends``: only these interfaces (kernel names) and what leads through them."""

    def concerned(ifname: str) -> bool:
        return ends is None or ifname in ends

    todo = [requests.up(requests.LOOPBACK, "lo")]
    if ends is None:
        todo.extend(requests.address(requests.LOOPBACK, address, "lo") for address in node.loopback)
    master = None
    if node.kind == "switch":
        master = item.index[BRIDGE]
        todo.append(requests.up(master, BRIDGE))
    for end, outgoing, mtu in ends_of(plan, node.name):
        if not concerned(end.ifname):
            continue
        index = item.index[end.ifname]
        if end.ifname != end.interface:
            todo.append(requests.altname(index, end.interface))
        todo.extend(requests.address(index, address, end.interface) for address in end.addresses)
        todo.extend(impair.egress(index, end, outgoing, mtu, engine))
        todo.append(requests.up(index, end.interface, master=master))
    todo.extend(requests.neighbour(item.index[n.ifname], n) for n in node.neighbours if concerned(n.ifname))
    todo.extend(requests.route(item.index[r.ifname], r) for r in node.routes if concerned(r.ifname))
    if ends is None:  # rules stay when an interface goes, also those that name it
        todo.extend(requests.rule(rule) for rule in node.rules)
    item.netlink.apply(f"node {node.name}", todo)


def _furnish(node: Node, path: Path, ends: Collection[str] | None = None) -> None:
    """Set what needs the interfaces to be there: settings of interfaces, and the ruleset unless only ``ends`` are
    new."""
    settings = sysctl.of_interfaces(node)
    if ends is not None:
        settings = {key: value for key, value in settings.items() if sysctl.interface_of(key) in ends}
    if settings:
        namespace.enter(path)
        sysctl.write(node, settings)
    if node.nft and ends is None:
        where = f"node {node.name}"
        ruleset.load(path, node.nft, where)
        if lacks := ruleset.missing(path, node.nft, where):
            raise ApplyError(f"nft took the ruleset, but it lacks: {', '.join(lacks)}", where=where)


def ends_of(plan: Plan, node: str) -> Iterable[tuple[End, Impairment, int]]:
    """Each interface of ``node`` with what its link does to packets that leave by it, and the link's MTU."""
    for link in plan.links_of(node):
        yield link.end(node), _outgoing(link, node), link.mtu


def _outgoing(link: Link, node: str) -> Impairment:
    return link.forward if link.a.node == node else link.backward


def verify(
    plan: Plan,
    node: Node,
    netlink: Netlink,
    engine: EngineName | None = None,
    ends: Collection[str] | None = None,
) -> None:
    """Compare what the kernel holds with the plan; ApplyError names the first difference. ``netlink`` is inside.

    ``ends``: only these interfaces (kernel names) and what leads through them.
    """
    where = f"node {node.name}"
    found = readback.devices(netlink)
    index = {ifname: device.index for ifname, device in found.items() if ends is None or ifname in ends}
    concerned = set(index.values())
    shaped = any(outgoing != Impairment() for _, outgoing, _ in ends_of(plan, node.name))
    held = netem.read(netlink) if shaped else {}
    expected_addresses: set[tuple[int, Interface]] = set()
    ours = [end for end in (end for end, _, _ in ends_of(plan, node.name)) if end.ifname in index]
    carrier.await_sending(netlink, where, [(index[end.ifname], end.interface) for end in ours])
    for end, outgoing, mtu in ends_of(plan, node.name):
        if ends is not None and end.ifname not in ends:
            continue
        device = found.get(end.ifname)
        if device is None:
            raise ApplyError(f"interface {end.interface} is missing", where=where)
        seen = (device.mac, device.mtu, device.up, device.altname)
        wanted = (end.mac, mtu, True, "" if end.ifname == end.interface else end.interface)
        _same(where, f"interface {end.interface} (hardware address, MTU, up, alternative name)", wanted, seen)
        if outgoing != Impairment():
            impair.verify_egress(where, held.get(device.index, {}), end, outgoing, mtu, engine)
        expected_addresses.update((device.index, address) for address in end.addresses)
    if ends is None:
        expected_addresses.update((requests.LOOPBACK, address) for address in node.loopback)
        _same(where, "rules", sorted_rules(node.rules), readback.rules(netlink))
    addresses = {entry for entry in readback.addresses(netlink) if entry[0] in concerned}
    _same(where, "addresses", expected_addresses, addresses)
    wanted_routes = sorted(
        (str(r.destination), str(r.via), index[r.ifname], r.table) for r in node.routes if r.ifname in index
    )
    seen_routes = sorted(
        (str(to), str(via), oif, table)
        for to, via, oif, table in readback.routes(netlink)
        if ends is None or oif in concerned
    )
    _same(where, "routes", wanted_routes, seen_routes)
    wanted_neighbours = {(index[n.ifname], n.address, n.mac) for n in node.neighbours if n.ifname in index}
    neighbours = {entry for entry in readback.permanent_neighbours(netlink) if ends is None or entry[0] in concerned}
    _same(where, "neighbours", wanted_neighbours, neighbours)


def sorted_rules(rules: Iterable[Rule]) -> list[Rule]:
    """Rules in the order of ``readback.rules``."""
    return sorted(rules, key=lambda rule: (rule.family, rule.priority))


def _same(where: str, what: str, wanted: object, seen: object) -> None:
    if wanted == seen:
        return
    if isinstance(wanted, (set, list)) and isinstance(seen, (set, list)):
        missing = [item for item in wanted if item not in seen]
        extra = [item for item in seen if item not in wanted]
        raise ApplyError(f"{what} differ after they were set: missing {missing}, unexpected {extra}", where=where)
    raise ApplyError(f"{what} reads {seen} after {wanted} was set", where=where)
