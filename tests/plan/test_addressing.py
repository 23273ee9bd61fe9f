"""Addresses of links and switches."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from testbed.model.topology import DefaultsSpec, LinkSpec, NodeSpec, Topology
from testbed.plan.expand import expand
from testbed.plan.types import Plan

Planned = Callable[[str], Plan]


def addresses(plan: Plan) -> list[tuple[str, str]]:
    """Both ends' addresses of every link."""
    return [(" ".join(map(str, link.a.addresses)), " ".join(map(str, link.b.addresses))) for link in plan.links]


def test_a_link_gets_two_addresses_of_its_own_and_the_router_the_lower(planned: Planned) -> None:
    plan = planned("nodes: {a: , b: }\nlinks: [[a, core], [core, b]]\n")
    assert addresses(plan) == [("10.0.0.1/31", "10.0.0.0/31"), ("10.0.0.2/31", "10.0.0.3/31")]
    assert str(plan.address("a")) == "10.0.0.1"


def test_allocation_goes_round_what_is_given_wherever_it_stands(planned: Planned) -> None:
    plan = planned(
        "nodes: {a: , b: , s: {kind: switch, subnet: 10.0.0.8/29}}\n"
        "links:\n  - [a, core]\n  - [b, core]\n  - {endpoints: [a, core], addresses: [10.0.0.1/30, 10.0.0.2/30]}\n"
        "  - [b, core]\n  - [s, core]\n  - [a, core]\n"
    )
    assert addresses(plan) == [
        ("10.0.0.5/31", "10.0.0.4/31"),
        ("10.0.0.7/31", "10.0.0.6/31"),
        ("10.0.0.1/30", "10.0.0.2/30"),
        ("10.0.0.17/31", "10.0.0.16/31"),
        ("", "10.0.0.9/29"),
        ("10.0.0.19/31", "10.0.0.18/31"),
    ]


def test_a_switch_with_given_and_allocated_addresses(planned: Planned) -> None:
    plan = planned(
        "nodes: {s: {kind: switch, subnet: 10.1.0.0/29}, a: , b: , c: }\n"
        "links:\n  - [a, s]\n  - {endpoints: [s, b], addresses: [null, 10.1.0.1/29]}\n  - [c, s]\n"
    )
    assert addresses(plan) == [("10.1.0.2/29", ""), ("", "10.1.0.1/29"), ("10.1.0.3/29", "")]


def test_given_addresses_tell_the_subnet_of_a_switch(planned: Planned) -> None:
    plan = planned(
        "nodes: {s: {kind: switch}, a: , b: }\n"
        "links:\n  - {endpoints: [a, s], addresses: [172.16.5.9/24, null]}\n  - [b, s]\n"
    )
    assert addresses(plan) == [("172.16.5.9/24", ""), ("172.16.5.1/24", "")]


def test_joined_switches_share_one_subnet(planned: Planned) -> None:
    plan = planned(
        "nodes: {s1: {kind: switch}, s2: {kind: switch}, s3: {kind: switch, subnet: fd00:5::/64}, a: , b: }\n"
        "links: [[s1, s2], [a, s1], [s3, s2], [b, s3], [s1, s3]]\n"
    )
    assert addresses(plan) == [("", ""), ("fd00:5::1/64", ""), ("", ""), ("fd00:5::2/64", ""), ("", "")]


def test_a_subnet_is_used_to_its_last_address(planned: Planned) -> None:
    links = ", ".join(f"[h{number}, s]" for number in range(6))
    nodes = ", ".join(f"h{number}: " for number in range(6))
    plan = planned(f"nodes: {{s: {{kind: switch, subnet: 10.1.0.0/29}}, {nodes}}}\nlinks: [{links}]\n")
    assert [a for a, _ in addresses(plan)] == [f"10.1.0.{number}/29" for number in range(1, 7)]


def test_addresses_of_both_families_on_parallel_links(planned: Planned) -> None:
    plan = planned(
        "nodes: {a: , r: {kind: router}}\nlinks:\n  - [a, r]\n"
        "  - {endpoints: [a, r], addresses: [fd00::2/64, fd00::1/64]}\n"
    )
    assert addresses(plan) == [("10.0.0.1/31", "10.0.0.0/31"), ("fd00::2/64", "fd00::1/64")]
    assert [str(route.destination) for route in plan.node("a").routes] == ["0.0.0.0/0", "::/0"]


def test_a_pool_of_ipv6(planned: Planned) -> None:
    plan = planned("defaults: {pool: 'fd00:9::/64'}\nnodes: {a: , s: {kind: switch}}\nlinks: [[a, core], [s, core]]\n")
    assert addresses(plan) == [("fd00:9::9/127", "fd00:9::8/127"), ("", "fd00:9::1/125")]


def test_permanent_neighbours_stand_on_links_but_not_on_switches(planned: Planned) -> None:
    plan = planned("nodes: {a: , s: {kind: switch}, b: }\nlinks: [[a, core], [s, core], [s, b]]\n")
    (entry,) = plan.node("a").neighbours
    assert (str(entry.address), entry.mac, entry.ifname) == ("10.0.0.8", plan.links[0].b.mac, "eth0")
    assert [str(entry.address) for entry in plan.node("core").neighbours] == ["10.0.0.9"]
    assert plan.node("b").neighbours == ()


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
    st.sampled_from(["10.0.0.0/20", "fd00::/64"]),
)
def test_no_two_interfaces_have_one_address(pairs: list[tuple[int, int]], pool: str) -> None:
    """In any graph of two switches, two routers and four hosts."""
    names = ["s0", "s1", "r0", "r1", "h0", "h1", "h2", "h3"]
    kinds = {"s": "switch", "r": "router", "h": "host"}
    topology = Topology(
        name="lab",
        defaults=DefaultsSpec(pool=pool),
        nodes={name: NodeSpec.model_validate({"kind": kinds[name[0]]}) for name in names},
        links=tuple(LinkSpec(endpoints=(names[a], names[b])) for a, b in pairs if a != b),
    )
    plan, _ = expand(topology)
    given_out = [address for link in plan.links for end in (link.a, link.b) for address in end.addresses]
    assert len({address.ip for address in given_out}) == len(given_out)
    assert all(address.ip in ip_network(pool) for address in given_out)
    for link in plan.links:
        for end in (link.a, link.b):
            assert len(end.addresses) == (end.node[0] != "s")
