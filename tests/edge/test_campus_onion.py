"""The combined topology as a plan: who hangs where, and that one system's traffic goes by the other's links."""

from __future__ import annotations

from pathlib import Path

from testbed.plan.load import load_topology
from testbed.plan.types import Plan

ROOT = Path(__file__).parents[2]


def router_of(plan: Plan, node: str) -> str:
    (link,) = plan.links_of(node)
    return link.peer(node).node


def way(plan: Plan, node: str, target: str) -> list[str]:
    """The nodes that a packet passes by the main tables of the plan."""
    address, passed = plan.address(target), [node]
    while passed[-1] != target:
        here = plan.node(passed[-1])
        links = {link.end(here.name).ifname: link.peer(here.name) for link in plan.links_of(here.name)}
        near = [peer.node for peer in links.values() if address in [a.ip for a in peer.addresses]]
        routes = [route for route in here.routes if route.table == 254 and address in route.destination]
        best = max(routes, key=lambda route: route.destination.prefixlen, default=None)
        assert near or best, f"{here.name} knows no way to {target}"
        passed.append(near[0] if near else links[best.ifname].node)  # type: ignore[union-attr]
        assert len(passed) < 20, passed
    return passed


def test_onion_instances_behind_the_campus() -> None:
    _, plan = load_topology(ROOT / "topologies" / "campus-onion.yaml")
    assert [router_of(plan, f"client{number}") for number in (1, 2, 3)] == ["telecom", "unicom", "mobile"]
    assert router_of(plan, "relay1") == "core"
    assert router_of(plan, "shop1") == "campus"
    assert way(plan, "shop1", "relay1") == ["shop1", "campus", "border-cernet", "cernet", "core", "relay1"]
    assert way(plan, "relay1", "shop1") == ["relay1", "core", "cernet", "border-cernet", "campus", "shop1"]
    assert way(plan, "client1", "relay1") == ["client1", "telecom", "core", "relay1"]
