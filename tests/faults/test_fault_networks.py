"""Faults of networks really take and are really healed, touch nobody else's filters, and disturb nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_world import Watch

from testbed.errors import TestbedError
from testbed.faults.base import Fault
from testbed.faults.blackhole import Blackhole
from testbed.faults.drop_port import DropPort
from testbed.faults.faults import Faults, own_faults
from testbed.faults.link_down import LinkDown
from testbed.faults.one_way_cut import OneWayCut
from testbed.faults.partition import Partition
from testbed.lab.up import up
from testbed.plan.types import Plan

pytestmark = pytest.mark.root

FOREIGN = """
table inet mine { chain x { type filter hook prerouting priority -299; counter; }; }
table inet testbed_other { set s { type ipv4_addr; }; }
"""


def test_partition(faults: Faults, watch: Watch) -> None:
    """Groups do not reach each other, their nodes do, and who is in none reaches all."""
    with faults.active(Partition(groups=[["a", "d"], ["b"], ["e"]])):
        assert watch.reaches("a", "d")
        assert not watch.reaches("a", "b")
        assert not watch.reaches("b", "a")
        assert not watch.reaches("e", "d"), "also behind the same switch"
        assert watch.reaches("c", "a")
        assert watch.reaches("c", "b")
    for source, target in (("a", "b"), ("b", "a"), ("e", "d")):
        assert watch.reaches(source, target)


def test_partition_from_a_router(faults: Faults, watch: Watch) -> None:
    """What a router would forward for the other group is lost too."""
    with faults.active(Partition(groups=[["core", "b"], ["a"]])):
        assert not watch.reaches("a", "c")
        assert watch.reaches("b", "c")
    assert watch.reaches("a", "c")


@pytest.mark.parametrize("where", ["a", "core"])
def test_blackhole(faults: Faults, watch: Watch, where: str) -> None:
    """In a host it keeps the host's own packets, in a router what it forwards; other targets are reached."""
    with faults.active(Blackhole(nodes=[where], target="b")):
        assert not watch.reaches("a", "b")
        assert watch.reaches("a", "c")
        assert watch.reaches("b", "b")
    assert watch.reaches("a", "b")


def test_blackhole_of_a_prefix(faults: Faults, watch: Watch) -> None:
    """All that is in it."""
    with faults.active(Blackhole(nodes=["core"], target="10.0.0.0/8")):
        assert not watch.reaches("a", "b")
        assert not watch.reaches("c", "d")
    assert watch.reaches("a", "b")


@pytest.mark.parametrize("where", ["a", "core", "c"])
def test_drop_port(faults: Faults, watch: Watch, where: str) -> None:
    """The port is not reached through the node, another one is."""
    assert watch.get("a", "c")[0] == 200
    with faults.active(DropPort(nodes=[where], port=8080)):
        began = time.monotonic()
        done = watch.inside("a", "curl", "-s", "-m", "1", f"http://{watch.address('c')}:8080/")
        assert done.returncode == 28, "silently: a time-out, not a refusal"
        assert time.monotonic() - began >= 0.9
        refused = watch.inside("a", "curl", "-s", "-m", "1", f"http://{watch.address('c')}:8081/")
        assert refused.returncode == 7
    assert watch.get("a", "c")[0] == 200


CUTS = [
    Partition(groups=[["a"], ["b"]]),
    Blackhole(nodes=["core", "a"], target="b"),
    DropPort(nodes=["core", "c"], port=8080),
]


@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.kind)
def test_c11_only_own_tables(faults: Faults, watch: Watch, fault: Fault) -> None:
    """C11: tables of others stay as they are, ours are gone; traffic beside it loses no packet all the while."""
    for node in ("a", "core"):
        watch.inside(node, "nft", FOREIGN)
    before = {node: watch.inside(node, "nft", "-s", "list", "ruleset").stdout for node in ("a", "b", "c", "core")}
    assert "mine" in before["core"]
    try:
        with watch.no_loss("a", "c"), faults.active(fault) as entry:
            assert any(entry.id.replace("-", "_") in table for table in watch.tables("core") + watch.tables("a"))
            time.sleep(0.1)
        after = {node: watch.inside(node, "nft", "-s", "list", "ruleset").stdout for node in before}
        assert after == before
    finally:
        for node in ("a", "core"):
            watch.inside(node, "nft", "delete table inet mine; delete table inet testbed_other")


def test_c11_two_of_a_kind_do_not_share(faults: Faults, watch: Watch) -> None:
    """Healing one leaves the other in force, whichever is healed first."""
    first = faults.inject(Blackhole(nodes=["a"], target="b"))
    second = faults.inject(Blackhole(nodes=["a"], target="c"))
    faults.heal(first)
    assert watch.reaches("a", "b")
    assert not watch.reaches("a", "c")
    faults.heal(second)
    assert watch.reaches("a", "c")
    assert watch.tables("a") == []


@pytest.mark.parametrize("fault", [Blackhole(nodes=["sw"], target="b"), DropPort(nodes=["sw"], port=80)])
def test_filters_in_switches_are_refused(faults: Faults, fault: Fault) -> None:
    """They would see no packet, and the fault would silently be none."""
    with pytest.raises(TestbedError, match="'sw' is a switch"):
        faults.inject(fault)


def test_nodes_in_two_groups_are_refused(faults: Faults) -> None:
    with pytest.raises(TestbedError, match="'a' is listed twice"):
        faults.inject(Partition(groups=[["a"], ["b", "a"]]))


def test_ipv6(state: Path, make_plan: Callable[..., Plan]) -> None:
    """Each of them takes packets of both families."""
    pair = {"endpoints": ["a", "b"], "addresses": ["fd00:1::1/64", "fd00:1::2/64"]}
    made = up(make_plan(nodes={"a": None, "b": None}, links=[pair]), f"six-{os.getpid()}")
    watch, faults = Watch(made), own_faults(made)

    def reaches() -> bool:
        return watch.inside("a", "ping", "-n", "-c2", "-i0.1", "-W0.5", "fd00:1::2").returncode == 0

    assert reaches()
    for fault in (
        Partition(groups=[["a"], ["b"]]),
        Blackhole(nodes=["b"], target="a"),
        Blackhole(nodes=["a"], target="fd00:1::/64"),
        OneWayCut(link=("b", "a")),
        LinkDown(link=("a", "b")),
    ):
        with faults.active(fault):
            assert not reaches(), fault.kind
        assert reaches(), fault.kind
    made.down()
