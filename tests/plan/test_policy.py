"""What subsystems can give to nodes beside links: it is in the plan, its JSON, its text; what cannot be is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.model.topology import DefaultsSpec
from testbed.net import ruleset
from testbed.plan.builder import PlanBuilder
from testbed.plan.text import plan_text
from testbed.plan.types import Plan, Service

RULESET = """
table ip edge {
    # a comment { with a brace
    set cernet { type ipv4_addr; flags interval; elements = { 202.112.0.0/16, 10.0.0.0/8 } }
    map later { type ipv4_addr : verdict; }
    counter replies { }
    chain pre {
        type filter hook prerouting priority mangle; policy accept;
        iifname vmap { "one" : accept, "two" : drop }
        ip saddr @cernet meta mark set 1 comment "a { b"; ip daddr 10.0.0.1 \\
            counter
    }
    chain empty { }
}
table inet other { chain c { accept; }; }
"""


def builder() -> PlanBuilder:
    build = PlanBuilder("lab", 1, "", DefaultsSpec())
    for name, kind in (("r1", "router"), ("r2", "router"), ("r3", "router"), ("a", "host"), ("b", "host")):
        build.node(name, (name,), kind="router" if kind == "router" else "host")
    for a, b in (("a", "r1"), ("r1", "r2"), ("r2", "b"), ("r3", "r2")):
        build.link(a, b, ("links",))
    return build


def finished(build: PlanBuilder) -> Plan:
    plan = build.build()
    assert build.problems == []
    return plan


def test_routes_of_any_table() -> None:
    build = builder()
    build.link("r1:direct", "r3:direct", ("links",), addresses=("10.99.0.0/31", "10.99.0.1/31"), routed=False)
    build.link("r1:second", "r3:second", ("links",), addresses=("10.99.1.0/31", "10.99.1.1/31"), routed=False)
    build.route("r1", "default", "r3", table=100)
    build.route("r1", "192.0.2.0/24", "r3:second")
    plan = finished(build)
    routes = {(str(route.destination), route.table): str(route.via) for route in plan.node("r1").routes}
    assert routes["0.0.0.0/0", 100] == "10.99.0.1"
    assert routes["192.0.2.0/24", 254] == "10.99.1.1"
    assert not any(route.ifname == "direct" and route.table == 254 for route in plan.node("r1").routes)
    assert not any("10.99" in str(route.destination) for node in plan.nodes for route in node.routes)


def test_a_given_route_takes_the_place_of_a_computed_one() -> None:
    plain = finished(builder())
    target = next(str(r.destination) for r in plain.node("r1").routes if r.table == 254)
    build = builder()
    build.link("r1", "r3", ("links",), routed=False)
    build.route("r1", target, "r3")
    found = [route for route in finished(build).node("r1").routes if str(route.destination) == target]
    assert [route.ifname for route in found] == ["to-r3"]


def test_rules_in_order_and_by_neighbour() -> None:
    build = builder()
    build.rule("r2", priority=200, table=7, fwmark=0x64)
    build.rule("r2", priority=100, table=9, iif_from="r1", source="61.128.0.0/16", destination="10.0.0.0/8")
    build.rule("r2", priority=50, table=9, source="2001:db8::/32")
    rules = finished(build).node("r2").rules
    assert [(rule.priority, rule.iif, rule.family) for rule in rules] == [
        (50, None, 6),
        (100, "to-r1", 4),
        (200, None, 4),
    ]


def test_loopback_addresses_are_taken() -> None:
    build = builder()
    build.loopback("a", "10.0.0.1/32")
    build.loopback("b", "10.0.0.1")
    plan = finished(build)
    assert [str(address) for address in plan.node("b").loopback] == ["10.0.0.1/32"]
    ends = [address.ip for link in plan.links for end in (link.a, link.b) for address in end.addresses]
    assert str(ends[0]) != "10.0.0.0"
    assert "10.0.0.1" not in map(str, ends)


def test_the_rest_and_the_text() -> None:
    build = builder()
    build.sysctl("a", "net/ipv4/tcp_syncookies", "0")
    build.nft("a", "table ip x { }")
    build.nft("a", "table ip y { }")
    build.file("a", "conf/server.conf", "root ${dir};\n")
    build.service("a", Service(name="sleep", argv=("sleep", "60")))
    build.rule("r2", priority=100, table=9, iif_from="r1", fwmark=3)
    build.route("r2", "default", "r1", table=9)
    build.loopback("a", "10.7.7.7/32")
    plan = finished(build)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.node("a").nft == "table ip x { }\ntable ip y { }"
    assert [service.name for service in plan.node("a").services] == ["sleep"]
    text = plan_text(plan, routes=True)
    for part in (
        "10.7.7.7 (lo)",
        "in by to-r1 marked 0x3",
        "net/ipv4/tcp_syncookies = 0",
        "ruleset of 2 lines",
        "conf/server.conf, 1 line",
        "default      10.0.0.2  to-r1      9",
    ):
        assert part in text, text


WRONG: dict[str, Callable[[PlanBuilder], object]] = {
    "no link": lambda build: (build.route("a", "10.0.0.0/8", "b"), build.build()),
    "no interface": lambda build: (build.route("a", "10.0.0.0/8", "r1:other"), build.build()),
    "no address of the family": lambda build: (build.route("a", "2001:db8::/32", "r1"), build.build()),
    "rule of no neighbour": lambda build: (build.rule("a", priority=1, table=1, iif_from="b"), build.build()),
    "two routes": lambda build: [build.route("a", "10.0.0.0/8", "r1") for _ in range(2)],
    "two families": lambda build: build.rule("a", priority=1, table=1, source="10.0.0.0/8", family=6),
    "a subnet on lo": lambda build: build.loopback("a", "10.0.0.1/24"),
    "a setting of the machine": lambda build: build.sysctl("a", "kernel/hostname", "x"),
    "a setting outside": lambda build: build.sysctl("a", "net/../kernel/hostname", "x"),
    "a file outside": lambda build: build.file("a", "../x", ""),
    "a file of the machine": lambda build: build.file("a", "/etc/passwd", ""),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be(wrong: Callable[[PlanBuilder], object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        wrong(builder())


def test_what_a_ruleset_makes() -> None:
    assert ruleset.tables(RULESET) == [("ip", "edge"), ("inet", "other")]
    found = {item[2:]: number for item, number in ruleset.items(RULESET).items() if item[2]}
    assert found == {
        ("set", "cernet"): 1,
        ("map", "later"): 0,
        ("counter", "replies"): 0,
        ("chain", "pre"): 3,
        ("chain", "empty"): 0,
        ("chain", "c"): 1,
    }
