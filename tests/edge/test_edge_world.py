"""The pure part of the edge: addresses, ways between networks, tables of the redirector, decisions about ways."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.edge import health, redirector, rulesets
from testbed.edge.measure import traffic
from testbed.edge.measure.compare import plan_in_mode
from testbed.edge.modes import redirect
from testbed.edge.plan.check import world_of
from testbed.edge.plan.world import World
from testbed.edge.spec import EdgeSpec
from testbed.errors import TestbedError
from testbed.net import ruleset
from testbed.plan.load import load_topology

ROOT = Path(__file__).parents[2]
ISPS: dict[str, Any] = {
    "telecom": {"prefixes": ["61.128.0.0/16", "61.130.0.0/16"], "public": "61.128.200.2"},
    "unicom": {"prefixes": ["123.112.0.0/16"], "public": "123.112.200.2", "clients": 3},
    "mobile": {"prefixes": ["111.0.0.0/16"], "public": "111.0.200.2"},
}
SITES: dict[str, Any] = {"www.campus.test": {}, "lib.campus.test": {"public": {"telecom": "61.128.200.3:80"}}}


def world(**keys: Any) -> World:
    made, problems = world_of(EdgeSpec.model_validate({"isps": ISPS, "sites": SITES, **keys}))
    assert problems == []
    assert made is not None
    return made


def test_a_mode_that_there_is_not() -> None:
    topology, _ = load_topology(ROOT / "topologies" / "campus.yaml")
    with pytest.raises(TestbedError, match=r"no mode 'teleport'.*\n.*none, redirect, smart-dns, bgp, cdn"):
        plan_in_mode(topology, "teleport")


def test_everybody_has_an_address_of_his_network() -> None:
    made = world()
    assert [network.name for network in made.networks] == ["telecom", "unicom", "mobile", "cernet"]
    for network in made.networks:
        ends = [network.uplink_router, network.uplink_border, network.resolver_own]
        for interface in (*ends, *(client.own for client in network.clients)):
            assert any(interface.ip in prefix for prefix in network.prefixes)
    everyone = [client.own.ip for client in made.clients]
    assert len(set(everyone)) == len(everyone) == 6
    assert not made.campus.overlaps(made.education.clients[0].own.network)
    assert {str(site.address) for site in made.sites} == {"202.112.10.1", "202.112.10.2"}


def test_ports_count_up_where_none_is_given() -> None:
    www, lib = world().sites
    assert {isp: f"{a}:{p}" for isp, (a, p) in www.public.items()} == {
        "telecom": "61.128.200.2:8001",
        "unicom": "123.112.200.2:8001",
        "mobile": "111.0.200.2:8001",
    }
    assert str(lib.public["telecom"][0]) == "61.128.200.3"
    assert lib.public["telecom"][1] == 80
    assert lib.public["unicom"][1] == 8002


def test_a_port_that_a_site_names_is_not_given_out() -> None:
    sites = {"a.test": {}, "b.test": {"public": {"telecom": 8001}}}
    a, b = world(sites=sites).sites
    assert (a.public["telecom"][1], b.public["telecom"][1]) == (8002, 8001)
    assert a.public["unicom"][1] == 8001


def test_round_trips_between_networks_are_the_published_ones() -> None:
    trips = [2 * path.delay_us for *_, path in world().between()]
    assert min(trips) == 200_000
    assert max(trips) == 500_000
    pairs = [{"between": ["mobile", "cernet"], "delay": "7ms", "loss": "1%"}]
    made = world(exchange={"delay": "150ms", "rate": "8mbit", "pairs": pairs})
    assert made.delay_us("cernet", "mobile") == 7000
    assert made.delay_us("telecom", "mobile") == 150_000
    path = made.paths[frozenset(("mobile", "cernet"))]
    assert (path.loss, path.rate_bps) == (0.01, 8_000_000)


def test_rulesets_say_what_they_make() -> None:
    made = world()
    for text in (
        rulesets.education_border(made),
        rulesets.campus_router(made),
        rulesets.inner_router(made),
        rulesets.inner_router_by_routes(),
        rulesets.redirector_by_routes(made),
        *(rulesets.provider_border(redirect.published(made, isp)) for isp in made.isps),
    ):
        assert ruleset.tables(text) == [("ip", "edge")]
    found = {item[2:]: number for item, number in ruleset.items(rulesets.inner_router(made)).items()}
    assert found["chain", "isp_telecom"] == 1
    assert found["map", "networks"] == 1


def test_where_users_are_sent() -> None:
    made = world(sites={**SITES, "secure.test": {"https": {"telecom": "t.secure.test"}, "public": {"unicom": 443}}})
    assert redirector.places(made.sites, "telecom").splitlines() == [
        "www.campus.test:80 http://61.128.200.2:8001;",
        "lib.campus.test:80 http://61.128.200.3;",
        "secure.test:80 https://t.secure.test:8002;",
    ]
    instead = redirector.places(made.sites, "telecom", {"telecom": "unicom"})
    assert "www.campus.test:80 http://123.112.200.2:8001;" in instead
    assert "secure.test:80 http://123.112.200.2:443;" in instead


def test_the_topology_of_the_documentation() -> None:
    _, plan = load_topology(ROOT / "topologies" / "campus.yaml")
    assert {node.role for node in plan.nodes} >= {"network", "client", "border router", "inner router", "redirector"}
    border = plan.node("border-cernet")
    assert [(rule.fwmark, rule.table) for rule in border.rules] == [(100, 100)]
    assert any(route.table == 100 and route.ifname == "inner" for route in border.routes)
    # without a mode's rules every router's way to the sites is the education network
    for name in ("telecom", "unicom", "mobile"):
        to_campus = [route for route in plan.node(name).routes if str(route.destination) == "202.112.10.0/24"]
        assert [route.ifname for route in to_campus] == ["to-cernet"]
        assert not any(route.ifname == name for route in plan.node("campus").routes if route.table == 254
                       and route.destination.prefixlen < 32)  # fmt: skip


@pytest.mark.parametrize(
    ("down", "silent", "policy", "expected"),
    [
        ([], [], "nearest", {"telecom": "telecom", "unicom": "unicom", "mobile": "mobile"}),
        (["telecom"], [], "nearest", {"telecom": "mobile"}),
        (["telecom"], [], "education", {"telecom": "education"}),
        (["telecom", "mobile"], [], "nearest", {"telecom": "education", "mobile": "education", "unicom": "unicom"}),
        ([], ["unicom"], "nearest", {"unicom": "education", "telecom": "telecom"}),
        (["telecom", "unicom", "mobile"], [], "nearest", dict.fromkeys(ISPS, "education")),
    ],
)
def test_ways(down: list[str], silent: list[str], policy: Any, expected: dict[str, str]) -> None:
    pairs = [
        {"between": ["telecom", "mobile"], "delay": "20ms"},
        {"between": ["telecom", "cernet"], "delay": "30ms"},
        {"between": ["telecom", "unicom"], "delay": "40ms"},
        {"between": ["mobile", "cernet"], "delay": "30ms"},
    ]
    made = world(exchange={"delay": "100ms", "pairs": pairs})
    links = {isp: isp not in down for isp in ISPS}
    found = health.ways(made, links, [isp for isp in ISPS if isp not in silent], policy)
    assert {isp: found[isp] for isp in expected} == expected


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_probes_change_only_after_a_row(answers: list[bool], misses: int, needed: int) -> None:
    probes = health.Probes(misses, needed)
    history: list[bool] = []
    for answered in answers:
        before = probes.up
        changed = probes.heard(answered)
        history.append(answered)
        row = needed if answered else misses
        assert changed == (probes.up != before)
        if changed:
            assert history[-row:] == [answered] * row
        elif probes.up != answered:
            assert len(history) < row or history[-row:] != [answered] * row


def test_the_way_is_read_off_the_bytes() -> None:
    links = [
        traffic.Carried("telecom", "client", 3000, 200),
        traffic.Carried("border", "telecom", 2900, 200),
        traffic.Carried("telecom", "cernet", 90, 90),
        traffic.Carried("campus", "border", 2900, 200),
        traffic.Carried("web", "campus", 2900, 200),
    ]
    assert traffic.way_of(links, "client", 1000) == ["client", "telecom", "border", "campus", "web"]
    assert traffic.way_of(links, "client", 5000) == ["client"]
    assert links[0].towards("telecom") == 200


@given(st.integers(1, 12), st.integers(1, 4))
def test_no_address_is_given_twice(isps: int, clients: int) -> None:
    made = world(
        isps={
            f"isp{number}": {"prefixes": [f"60.{number}.0.0/20"], "public": f"60.{number}.1.1", "clients": clients}
            for number in range(isps)
        },
        sites={f"s{number}.test": {} for number in range(5)},
    )
    networks = [network for n in made.networks for network in (
        n.uplink_border.network, n.resolver_own.network, *(c.own.network for c in n.clients))]  # fmt: skip
    assert not any(a.overlaps(b) for a, b in combinations(networks, 2))
    assert len({public for site in made.sites for public in site.public.values()}) == 5 * isps
    listeners = {network.listener.ip for network in made.networks} | {network.inner_end.ip for network in made.networks}
    assert len(listeners) == 2 * len(made.networks)
