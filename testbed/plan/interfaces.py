"""Which interface of which node each link ends at: those that are named, then names for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from testbed.errors import Path, Problem, halves, nearest
from testbed.model.words import check_interface
from testbed.plan.draft import EndDraft, LinkDraft, NodeDraft
from testbed.plan.names import kernel_ifname

Report = Callable[[Problem], None]


def resolve_links(nodes: Mapping[str, NodeDraft], links: Iterable[LinkDraft], report: Report) -> list[LinkDraft]:
    """The links whose ends exist, each end with an interface. Nodes of links that are left out become doubtful.

    A host's interfaces are ``eth0``, ``eth1`` ...; a router's and a switch's are ``to-PEER``, with ``-2``, ``-3`` for
    further links to the same peer. A name that the topology gives is never taken by another.
    """
    sound = [link for link in links if _ends_exist(nodes, link, report)]
    taken: dict[str, dict[str, Path]] = {name: {} for name in nodes}
    kept = []
    for link in sound:
        named = [_named(taken[end.node], end, report) for end in link.ends]  # both, so that both are reported
        if all(named):
            kept.append(link)
        else:
            doubt(nodes, link)
    numbers: dict[tuple[str, str], int] = {}
    for link in kept:
        for end, peer in (link.ends, link.ends[::-1]):
            if not end.interface:
                is_host = nodes[end.node].kind == "host"
                end.interface = _choose(end.node, "eth" if is_host else f"to-{peer.node}", taken[end.node], numbers)
                taken[end.node][end.interface] = end.path
    _kernel_names(kept, report)
    return kept


def doubt(nodes: Mapping[str, NodeDraft], link: LinkDraft) -> None:
    """Something is wrong with ``link``: what seems to be missing on its nodes may be what it was meant to bring."""
    for name in link.nodes:
        if name in nodes:
            nodes[name].doubtful = True


def _ends_exist(nodes: Mapping[str, NodeDraft], link: LinkDraft, report: Report) -> bool:
    exist = True
    for end in link.ends:
        if end.node not in nodes:
            remedy = nearest(end.node, nodes, "add it under `nodes`")
            report(Problem(end.path, f"there is no node {end.node!r}", remedy, assumes="nodes"))
            exist = False
    if exist and link.nodes[0] == link.nodes[1]:
        report(Problem(link.ends[1].path, f"both endpoints are {link.nodes[0]!r}", "join two different nodes"))
        exist = False
    if not exist:
        doubt(nodes, link)
    return exist


def _named(taken: dict[str, Path], end: EndDraft, report: Report) -> bool:
    """Whether the name that the topology gives is free; no name is."""
    if not end.interface:
        return True
    try:
        check_interface(end.interface)
    except ValueError as error:
        report(Problem(end.path, *halves(error)))
        return False
    if end.interface in taken:
        message = f"interface {end.interface!r} of {end.node!r} is on another link already"
        report(Problem(end.path, message, "name another one", other=taken[end.interface]))
        return False
    taken[end.interface] = end.path
    return True


def _choose(node: str, base: str, taken: Mapping[str, Path], numbers: dict[tuple[str, str], int]) -> str:
    """``ethN`` from 0 on; ``to-PEER``, then ``to-PEER-2`` and so on."""
    while True:
        number = numbers.get((node, base), 0)
        numbers[node, base] = number + 1
        name = f"eth{number}" if base == "eth" else base if number == 0 else f"{base}-{number + 1}"
        if name not in taken:
            return name


def _kernel_names(links: Iterable[LinkDraft], report: Report) -> None:
    taken: dict[tuple[str, str], EndDraft] = {}
    for link in links:
        for end in link.ends:
            end.ifname = kernel_ifname(end.interface)
            other = taken.setdefault((end.node, end.ifname), end)
            if other is not end:
                message = (
                    f"interfaces {other.interface!r} and {end.interface!r} of {end.node!r} get one kernel name, "
                    f"{end.ifname!r}"
                )
                report(Problem(end.path, message, "name one of them, as in `node:interface`", other=other.path))
