"""Whether the nodes of a plan hang together. One lab is one routed internet: who is cut off is so by mistake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed.errors import Problem
from testbed.plan.draft import LinkDraft, NodeDraft


def disconnected(nodes: Mapping[str, NodeDraft], links: Iterable[LinkDraft]) -> list[Problem]:
    """One problem for each group of nodes that no link joins with the largest group."""
    leader = {name: name for name in nodes}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for link in links:
        a, b = (find(node) for node in link.nodes)
        leader[b] = a
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(find(name), []).append(name)
    main = max(groups.values(), key=len, default=[])
    return [_cut_off(group, nodes) for group in groups.values() if group is not main]


def _cut_off(group: list[str], nodes: Mapping[str, NodeDraft]) -> Problem:
    draft = nodes[group[0]]
    at_key = draft.path[:1] == ("nodes",)
    if len(group) == 1:
        message = f"node {group[0]!r} is on no link"
        return Problem(draft.path, message, "add a link to it, or remove it", at_key, assumes="links")
    names = [repr(name) for name in group]
    last = names[-1] if len(names) <= 3 else f"{len(names) - 2} more"
    shown = f"{', '.join(names[: len(names) - 1 if len(names) <= 3 else 2])} and {last}"
    message = f"{shown} are not connected with the other nodes"
    return Problem(draft.path, message, "add a link between one of them and the rest", at_key, assumes="links")
