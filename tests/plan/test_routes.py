"""Routes: followed hop by hop they lead everywhere, in both families, without going in circles."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from testbed.model.topology import DefaultsSpec, LinkSpec, NodeSpec, Topology
from testbed.plan.expand import expand
from testbed.plan.types import Address, Node, Plan

Planned = Callable[[str], Plan]


def next_hop(node: Node, plan: Plan, target: Address) -> tuple[Address, str] | None:
    """Where the kernel would send a packet: on-link, else by the longest prefix. None: unreachable."""
    for link in plan.links_of(node.name):
        end = link.end(node.name)
        if any(target in address.network for address in end.addresses):
            return target, end.ifname
    fitting = [
        route for route in node.routes if route.destination.version == target.version and target in route.destination
    ]
    if not fitting:
        return None
    route = max(fitting, key=lambda route: route.destination.prefixlen)
    return route.via, route.ifname


def owner_of(plan: Plan, address: Address) -> str:
    return next(
        end.node for link in plan.links for end in (link.a, link.b) for own in end.addresses if own.ip == address
    )


def walk(plan: Plan, source: str, target: Address) -> list[str]:
    """The nodes that a packet passes; the last one has the address, or is where it ended."""
    path = [source]
    while owner_of(plan, target) != path[-1]:
        node = plan.node(path[-1])
        assert node.kind == "router" or len(path) == 1, f"{node.name} is a {node.kind} and forwards nothing"
        hop = next_hop(node, plan, target)
        if hop is None:
            return path
        assert hop[1] in {link.end(node.name).ifname for link in plan.links_of(node.name)}
        path.append(owner_of(plan, hop[0]))
        assert len(path) == len(set(path)), f"in a circle: {path}"
    return path


@st.composite
def connected(draw: st.DrawFn) -> Topology:
    """Routers and switches in any connected graph, hosts on them, some on two; either family."""
    inner = draw(st.lists(st.sampled_from(["router", "switch"]), min_size=1, max_size=6))
    inner[0] = "router"
    names = [f"{kind[0]}{number}" for number, kind in enumerate(inner)]
    links = [(names[draw(st.integers(0, number - 1))], names[number]) for number in range(1, len(names))]
    if len(names) > 1:
        extra = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
        links += draw(st.lists(extra, max_size=5))
    hosts = [f"h{number}" for number in range(draw(st.integers(1, 5)))]
    for host in hosts:
        links += [(host, peer) for peer in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))]
    kinds = {"r": "router", "s": "switch", "h": "host"}
    return Topology(
        name="lab",
        defaults=DefaultsSpec(pool=draw(st.sampled_from(["10.0.0.0/8", "fd00::/48"]))),
        nodes={name: NodeSpec.model_validate({"kind": kinds[name[0]]}) for name in names + hosts},
        links=tuple(LinkSpec(endpoints=pair) for pair in links),
    )


@given(connected())
def test_every_address_is_reached_from_every_node(topology: Topology) -> None:
    plan, problems = expand(topology)
    assert problems == []
    for node in plan.nodes:
        if node.kind == "switch":
            assert node.routes == ()
            continue
        for link in plan.links:
            for end in (link.a, link.b):
                for address in end.addresses:
                    assert walk(plan, node.name, address.ip)[-1] == end.node


def test_paths_are_the_shortest(planned: Planned) -> None:
    routers = ", ".join(f"r{number}: {{kind: router}}" for number in range(6))
    ring = ", ".join(f"[r{number}, r{(number + 1) % 6}]" for number in range(6))
    plan = planned(f"nodes: {{{routers}, a: , b: }}\nlinks: [{ring}, [a, r0], [b, r2]]\n")
    assert walk(plan, "a", plan.address("b")) == ["a", "r0", "r1", "r2", "b"]


def test_a_host_with_one_router_has_one_default_route(planned: Planned) -> None:
    plan = planned("nodes: {a: , b: }\nlinks: [[a, core], [a, core], [b, core]]\n")
    (route,) = plan.node("a").routes
    assert (str(route.destination), str(route.via), route.ifname) == ("0.0.0.0/0", "10.0.0.0", "eth0")


def test_a_host_with_two_routers_has_a_default_and_what_is_nearer_by_the_other(planned: Planned) -> None:
    plan = planned(
        "nodes: {r1: {kind: router}, r2: {kind: router}, a: , b: , c: }\n"
        "links: [[a, r1], [a, r2], [r1, r2], [b, r1], [c, r2]]\n"
    )
    default, *others = plan.node("a").routes
    assert (str(default.destination), str(default.via)) == ("0.0.0.0/0", "10.0.0.0")
    assert [(str(route.destination), str(route.via)) for route in others] == [("10.0.0.8/31", "10.0.0.2")]
    assert walk(plan, "a", plan.address("c")) == ["a", "r2", "c"]


def test_default_routes_are_by_family(planned: Planned) -> None:
    plan = planned(
        "nodes: {r4: {kind: router}, r6: {kind: router}, a: , b: }\n"
        "links:\n  - [a, r4]\n  - {endpoints: [a, r6], addresses: [fd00:1::2/64, fd00:1::1/64]}\n  - [b, r4]\n"
        "  - {endpoints: [b, r6], addresses: [fd00:2::2/64, fd00:2::1/64]}\n"
    )
    assert [(str(route.destination), str(route.via)) for route in plan.node("a").routes] == [
        ("0.0.0.0/0", "10.0.0.0"),
        ("::/0", "fd00:1::1"),
    ]
    assert walk(plan, "a", ip_address("fd00:2::2")) == ["a", "r6", "b"]
    assert walk(plan, "a", ip_address("10.0.0.3")) == ["a", "r4", "b"]


def test_hosts_do_not_forward(planned: Planned) -> None:
    plan = planned("nodes: {a: , proxy: , b: }\nlinks: [[a, proxy], [proxy, b]]\n")
    assert plan.node("a").routes == ()
    assert walk(plan, "a", plan.address("b")) == ["a"]


def test_a_static_route_wins_over_a_computed_one(planned: Planned) -> None:
    plan = planned(
        "nodes:\n  r1: {kind: router}\n  r2: {kind: router}\n"
        "  a: {routes: [{to: default, via: 10.8.0.1}, {to: 192.168.0.0/16, via: 10.9.0.1}]}\n"
        "links:\n  - {endpoints: [a, r1], addresses: [10.9.0.2/30, 10.9.0.1/30]}\n"
        "  - {endpoints: [a, r2], addresses: [10.8.0.2/30, 10.8.0.1/30]}\n  - [r1, r2]\n"
    )
    routes = {str(route.destination): str(route.via) for route in plan.node("a").routes}
    assert routes["0.0.0.0/0"] == "10.8.0.1"
    assert routes["192.168.0.0/16"] == "10.9.0.1"


def test_routers_have_no_default_route(planned: Planned) -> None:
    """A packet to nobody must end as unreachable, not go to and fro between two routers."""
    plan = planned("nodes: {r1: {kind: router}, r2: {kind: router}}\nlinks: [[r1, r2]]\n")
    assert all(route.destination.prefixlen > 0 for node in plan.nodes for route in node.routes)


def test_what_is_behind_the_other_family_is_not_reached(planned: Planned) -> None:
    plan = planned(
        "nodes: {r1: {kind: router}, r2: {kind: router}, a: , b: }\n"
        "links:\n  - [a, r1]\n  - [r1, r2]\n  - {endpoints: [b, r2], addresses: [fd00:1::2/64, fd00:1::1/64]}\n"
    )
    for node in plan.nodes:
        assert all(route.via.version == route.destination.version for route in node.routes)
    assert walk(plan, "a", plan.address("b")) == ["a"]
