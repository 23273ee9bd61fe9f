"""Routes of other tables, rules, addresses on lo, settings, rulesets and files in real namespaces, also afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed.errors import ApplyError
from testbed.lab import links
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.model.topology import DefaultsSpec
from testbed.net import build as network
from testbed.net import readback, ruleset
from testbed.net.build import verify
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan, Service
from testbed.runtime.container import ContainerRuntime

pytestmark = pytest.mark.root

FILTER = """
table ip edge {
    set marked { type ipv4_addr; flags interval; elements = { 10.5.0.0/24 } }
    chain pre { type filter hook prerouting priority mangle; ip daddr @marked meta mark set 0x64 counter; }
}
"""


def policy_plan() -> Plan:
    """Two ways from a to b: the routed one over r1, and over r2, which only marked packets take."""
    build = PlanBuilder("policy", 1, "", DefaultsSpec())
    for name in ("r0", "r1", "r2", "r3"):
        build.node(name, (name,), kind="router")
    for name in ("a", "b"):
        build.node(name, (name,))
    build.link("a", "r0", ("links",), addresses=("10.1.0.2/24", "10.1.0.1/24"))
    build.link("b", "r3", ("links",), addresses=("10.2.0.2/24", "10.2.0.1/24"))
    build.link("r0", "r1", ("links",))
    build.link("r1", "r3", ("links",))
    build.link("r0", "r2", ("links",), routed=False)
    build.link("r2", "r3", ("links",), routed=False)
    build.loopback("b", "10.5.0.1/32")
    build.nft("r0", FILTER)
    for router, via in (("r0", "r2"), ("r2", "r3")):
        build.route(router, "10.5.0.0/24", via, table=100 if router == "r0" else 254)
    build.route("r3", "10.5.0.0/24", "b")
    build.route("r2", "10.1.0.0/24", "r0")
    build.route("r3", "default", "r2", table=300)
    build.rule("r0", priority=100, fwmark=0x64, table=100)
    build.rule("r3", priority=200, source="10.5.0.0/24", iif_from="b", table=300)
    build.sysctl("r0", "net/ipv4/tcp_syncookies", "0")
    build.sysctl("r0", "net/ipv4/conf/to-r2/accept_redirects", "0")
    build.file("a", "conf/hello", "in ${dir}\n")
    build.service("a", Service(name="reader", argv=("sh", "-c", "cat conf/hello; sleep 600")))
    plan = build.build()
    assert build.problems == []
    return plan


def path_works(lab: Lab) -> bool:
    return lab.exec("a", ["ping", "-c1", "-W2", "-n", "10.5.0.1"]).returncode == 0


def check(lab: Lab, node: str) -> None:
    links.in_node(lab, node, lambda netlink: verify(lab.plan, lab.plan.node(node), netlink, lab.record.impair))


def test_policy_routing_lives_through_changes(state: Path) -> None:
    lab = up(policy_plan())
    assert path_works(lab)
    counted = lab.exec("r0", ["nft", "list", "chain", "ip", "edge", "pre"], check=True).stdout
    assert "counter packets 1" in counted
    file = lab.node_folder("a") / "conf" / "hello"
    assert file.read_text() == f"in {lab.node_folder('a')}\n"
    deadline = time.monotonic() + 20
    while (said := (lab.node_folder("a") / "reader.log").read_text()) != file.read_text():
        assert time.monotonic() < deadline, said
        time.sleep(0.02)
    assert lab.exec("r0", ["cat", "/proc/sys/net/ipv4/tcp_syncookies"]).stdout.strip() == "0"

    # a link that goes down takes the routes of every table with it, and they come back
    link = links.find(lab, "r0", "r2")
    for end in (link.a, link.b):
        links.set_admin_state(lab, end, up=False)
    assert not path_works(lab)
    for end in (link.a, link.b):
        links.set_admin_state(lab, end, up=True)
    assert path_works(lab)
    for node in ("r0", "r2"):
        check(lab, node)

    # a neighbour that the kernel has found out itself meanwhile is no obstacle
    peer = link.peer("r0")
    entry = [str(peer.addresses[0].ip), "lladdr", peer.mac, "dev", "to-r2", "nud", "stale"]
    lab.exec("r0", ["ip", "neigh", "replace", *entry], check=True)
    assert any(what.startswith("neighbour") for what in links.missing(lab, link.end("r0")))
    links.set_admin_state(lab, link.end("r0"), up=True)
    check(lab, "r0")

    # a rule and a route that somebody took away are found missing, and put back
    lab.exec("r0", ["ip", "rule", "del", "pref", "100"], check=True)
    lab.exec("r0", ["ip", "route", "flush", "table", "100"], check=True)
    lacks = links.missing(lab, link.end("r0"))
    assert len(lacks) == 2
    assert any(what.startswith("route 10.5.0.0/24") for what in lacks)
    with pytest.raises(ApplyError, match="rules differ"):
        check(lab, "r0")
    links.set_admin_state(lab, link.end("r0"), up=True)
    assert links.missing(lab, link.end("r0")) == []
    check(lab, "r0")

    # a link made anew
    network.relink(lab.plan, link, lab.namespace, lab.record.impair)
    assert path_works(lab)
    check(lab, "r0")

    # a flushed chain is found, and loading the ruleset again replaces what is left
    assert ruleset.missing(lab.namespace("r0"), FILTER, "") == []
    lab.exec("r0", ["nft", "flush", "chain", "ip", "edge", "pre"], check=True)
    assert ruleset.missing(lab.namespace("r0"), FILTER, "") == ["rules in chain pre of table ip edge"]
    ruleset.load(lab.namespace("r0"), FILTER, "")
    assert ruleset.missing(lab.namespace("r0"), FILTER, "") == []
    assert path_works(lab)
    rules = links.in_node(lab, "r3", readback.rules)
    assert tuple(rules) == lab.plan.node("r3").rules
    lab.down()


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("nft", "nft refused the ruleset.*syntax error"),
        ("sysctl", "no sysctl net/ipv4/no_such_thing"),
        ("value", "does not take"),
    ],
)
def test_what_the_kernel_refuses_is_named(state: Path, node: str, words: str) -> None:
    build = PlanBuilder("refused", 1, "", DefaultsSpec())
    build.node("a", ("a",))
    if node == "nft":
        build.nft("a", "table ip x { chain c { nonsense; } }")
    else:
        build.sysctl("a", "net/ipv4/no_such_thing" if node == "sysctl" else "net/ipv4/ip_forward", "nonsense")
    with pytest.raises(ApplyError, match=words):
        up(build.build())


@pytest.mark.engine
def test_a_container_that_is_made_again(state: Path) -> None:
    """Its namespace is a new one, and gets everything again."""
    build = PlanBuilder("again", 1, "", DefaultsSpec())
    build.node("r", ("r",), kind="router")
    build.node("c", ("c",), runtime="container")
    build.link("c", "r", ("links",))
    build.nft("c", FILTER)
    build.loopback("c", "10.5.0.1/32")
    build.route("c", "10.9.0.0/16", "r", table=100)
    build.rule("c", priority=100, fwmark=0x64, table=100)
    lab = up(build.build())
    check(lab, "c")
    runtime = lab.runtime("c")
    place = lab.place("c")
    assert isinstance(runtime, ContainerRuntime)
    runtime.remove_node(place)
    pids = runtime.create([place])
    links.rewire(lab, "c", pids["c"])
    check(lab, "c")
    assert ruleset.missing(lab.namespace("c"), FILTER, "") == []
