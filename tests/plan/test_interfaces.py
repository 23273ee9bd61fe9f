"""Interface names of links, readable and in the kernel."""

from __future__ import annotations

from collections.abc import Callable

from testbed.plan.types import Plan

Planned = Callable[[str], Plan]


def interfaces(plan: Plan, node: str) -> list[str]:
    return [link.end(node).interface for link in plan.links_of(node)]


def test_hosts_have_ethN_and_routers_the_name_of_their_peer(planned: Planned) -> None:
    plan = planned(
        "nodes: {r: {kind: router}, a: , s: {kind: switch}}\nlinks: [[a, r], [r, s], [a, s], [a, r], [r, a]]\n"
    )
    assert interfaces(plan, "a") == ["eth0", "eth1", "eth2", "eth3"]
    assert interfaces(plan, "r") == ["to-a", "to-s", "to-a-2", "to-a-3"]
    assert interfaces(plan, "s") == ["to-r", "to-a"]


def test_a_name_that_is_given_is_never_taken_by_another(planned: Planned) -> None:
    plan = planned("nodes: {r: {kind: router}, a: , b: }\nlinks: [[a, r], [b, r], [r:to-a, 'a:eth0']]\n")
    assert interfaces(plan, "a") == ["eth1", "eth0"]
    assert interfaces(plan, "r") == ["to-a-2", "to-b", "to-a"]


def test_a_peer_whose_name_looks_like_a_number_of_another(planned: Planned) -> None:
    plan = planned("nodes: {r: {kind: router}, b: , b-2: }\nlinks: [[r, b], [r, b-2], [r, b]]\n")
    assert interfaces(plan, "r") == ["to-b", "to-b-2", "to-b-3"]


def test_C1_two_long_names_with_one_beginning(planned: Planned) -> None:
    a, b = "web-server-in-building-1-room-101", "web-server-in-building-1-room-102"
    plan = planned(f"nodes: {{{a}: , {b}: }}\nlinks: [[core, {a}], [core, {b}], [{a}:uplink-to-the-other-room, {b}]]\n")
    core = [link.end("core") for link in plan.links_of("core")]
    assert [end.interface for end in core] == [f"to-{a}", f"to-{b}"], "readable names stay whole"
    assert len({end.ifname for end in core}) == 2
    for node in plan.nodes:
        kernel_names = {link.end(node.name).ifname for link in plan.links_of(node.name)}
        assert len(kernel_names) == len(plan.links_of(node.name))
        assert all(len(name) <= 15 for name in kernel_names)
        assert {route.ifname for route in node.routes} <= kernel_names
    assert len({end.mac for link in plan.links for end in (link.a, link.b)}) == 6


def test_the_core_router_is_there_when_a_link_asks_for_it(planned: Planned) -> None:
    plan = planned("nodes: {a: , b: }\nlinks: [[a, core:left], [core, b]]\n")
    assert [(node.name, node.kind) for node in plan.nodes] == [("a", "host"), ("b", "host"), ("core", "router")]
    assert interfaces(plan, "core") == ["left", "to-b"]


def test_the_core_router_can_be_written_out(planned: Planned) -> None:
    plan = planned("nodes: {core: {kind: router, services: {x: {command: [true-program]}}}, a: }\nlinks: [[a, core]]\n")
    assert [service.name for service in plan.node("core").services] == ["x"]
