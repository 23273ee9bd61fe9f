"""What the kernel gets is what the topology says: reachability, addresses, MTU, rates, names."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rates import middle_rate

from testbed.errors import ApplyError
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.net import namespace
from testbed.net.build import verify
from testbed.net.netlink import in_namespace
from testbed.plan.types import Plan

pytestmark = pytest.mark.root

PAYLOAD, HEADERS = 1472, 42
"""Bytes of a full datagram, and what Ethernet, IP and UDP add to it."""
MakePlan = Callable[..., Plan]


def ping(lab: Lab, source: str, target: str, *options: str) -> bool:
    """Whether one echo request from ``source`` to the node or address ``target`` is answered."""
    address = target if "." in target or ":" in target else str(lab.plan.address(target))
    return lab.exec(source, ["ping", "-c1", "-W2", "-n", *options, address]).returncode == 0


def test_routers_in_a_chain(state: Path, make_plan: MakePlan) -> None:
    """Packets cross two routers each way, and a host is no router."""
    lab = up(
        make_plan(
            nodes={"a": None, "b": None, "middle": None, "r1": {"kind": "router"}, "r2": {"kind": "router"}},
            links=[["a", "r1"], ["r1", "r2"], ["r2", "b"], ["middle", "r1"], ["middle", "r2"]],
        )
    )
    assert ping(lab, "a", "b")
    assert ping(lab, "b", "a")
    lab.exec("r1", ["ip", "link", "set", "to-r2", "down"], check=True)
    assert not ping(lab, "a", "b"), "the host `middle` must not forward"


def test_switch(state: Path, make_plan: MakePlan) -> None:
    """Hosts and a router on joined switches share a subnet and get out of it."""
    lab = up(
        make_plan(
            nodes={
                "s1": {"kind": "switch", "subnet": "10.9.0.0/24"},
                "s2": {"kind": "switch"},
                "r": {"kind": "router"},
                "a": None,
                "b": None,
                "far": None,
            },
            links=[["a", "s1"], ["s1", "s2"], ["s2", "b"], ["s1", "r"], ["r", "far"]],
        )
    )
    assert ping(lab, "a", "b")
    assert ping(lab, "b", "far")
    assert ping(lab, "far", "a")


def test_c1_long_names(state: Path, make_plan: MakePlan) -> None:
    """C1: names that are the same up to the kernel's limit make two links; the readable names are known everywhere."""
    names = ["a-very-long-node-name-number-one", "a-very-long-node-name-number-two"]
    lab = up(make_plan(nodes=dict.fromkeys(names), links=[["core", name] for name in names]))
    assert ping(lab, *names)
    shown = json.loads(lab.exec("core", ["ip", "-json", "link"], check=True).stdout)
    readable = {name for link in shown for name in link.get("altnames", [])}
    assert {f"to-{name}" for name in names} <= readable


def test_c16_one_mtu(state: Path, make_plan: MakePlan) -> None:
    """C16: a packet of exactly the MTU passes unfragmented, one byte more does not."""
    lab = up(make_plan(nodes={"a": None, "b": None}, links=[{"endpoints": ["a", "b"], "mtu": 1400}]))
    headers = 28
    assert ping(lab, "a", "b", "-M", "do", "-s", str(1400 - headers))
    assert not ping(lab, "a", "b", "-M", "do", "-s", str(1400 - headers + 1))


def test_ipv6(state: Path, make_plan: MakePlan) -> None:
    """Links may have IPv6 addresses, and routers forward between them."""
    lab = up(
        make_plan(
            nodes={"a": None, "b": None, "r": {"kind": "router"}},
            links=[
                {"endpoints": ["a", "r"], "addresses": ["fd00:1::2/64", "fd00:1::1/64"]},
                {"endpoints": ["b", "r"], "addresses": ["fd00:2::2/64", "fd00:2::1/64"]},
            ],
        )
    )
    assert ping(lab, "a", "fd00:2::2")


def test_no_way_out(state: Path, make_plan: MakePlan) -> None:
    """A lab has no route to anything but itself."""
    lab = up(make_plan(nodes={"a": None}, links=[["a", "core"]]))
    done = lab.exec("core", ["ip", "route", "get", "192.0.2.1"])
    assert done.returncode != 0
    assert "unreachable" in done.stderr


@pytest.mark.parametrize("rate_mbit", [8, 50])
def test_rate(state: Path, make_plan: MakePlan, rate_mbit: int) -> None:
    """A limited link carries what it should, by the receiver's clock, 10 % either way.

    Datagrams, which fill it at any time: TCP may need longer than the test to get over what it lost at its start.
    """
    plan = make_plan(nodes={"a": None, "b": None}, links=[{"endpoints": ["a", "b"], "rate": f"{rate_mbit}mbit"}])
    lab = up(plan)
    place = (str(plan.address("b")), 5001)
    receiver = namespace.inside(lab.namespace("b"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sender = namespace.inside(lab.namespace("a"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    over = threading.Event()

    def send() -> None:
        while not over.is_set():
            sender.send(bytes(PAYLOAD))

    with receiver, sender:
        receiver.bind(place)
        receiver.settimeout(30)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)  # so that it waits for the link, and none is lost
        sender.settimeout(30)
        sender.connect(place)
        thread = threading.Thread(target=send)
        thread.start()
        try:
            warm = 0
            while warm < 300_000:  # past the burst
                warm += len(receiver.recv(65536))
            rate = middle_rate(receiver)
        finally:
            over.set()
            thread.join()
    assert rate == pytest.approx(rate_mbit * 1e6 * PAYLOAD / (PAYLOAD + HEADERS), rel=0.1)


def test_c17_readback_finds_differences(state: Path, make_plan: MakePlan) -> None:
    """What somebody else changed in a node is found by the readback and named."""
    plan = make_plan(nodes={"a": None, "b": None}, links=[{"endpoints": ["a", "b"], "rate": "8mbit"}])
    lab = up(plan)

    def check() -> None:
        in_namespace(lab.namespace("a"), lambda netlink: verify(plan, plan.node("a"), netlink))

    check()
    peer = str(plan.address("b"))
    for change, named in (
        (["ip", "route", "add", "10.99.0.0/16", "via", peer], "routes"),
        (["ip", "address", "add", "10.99.0.1/32", "dev", "eth0"], "addresses"),
        (["ip", "neigh", "replace", peer, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0"], "neigh"),
        (["tc", "qdisc", "replace", "dev", "eth0", "root", "pfifo"], "rate of eth0"),
    ):
        lab.exec("a", change, check=True)
        with pytest.raises(ApplyError, match=named):
            check()
        lab.exec("a", ["ip", "route", "flush", "proto", "boot"])
        lab.exec("a", ["ip", "address", "del", "10.99.0.1/32", "dev", "eth0"])
