"""Faults of links really take and are really healed, as seen from outside, and disturb nothing else (case C11)."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.errors import TestbedError
from testbed.faults.base import Fault, FaultBusy, FaultError
from testbed.faults.degrade import Degrade
from testbed.faults.faults import Faults
from testbed.faults.link_down import LinkDown
from testbed.faults.link_flap import LinkFlap
from testbed.faults.mtu_shrink import MtuShrink
from testbed.faults.one_way_cut import OneWayCut
from testbed.lab import links
from testbed.lab.lab import Lab
from testbed.net import namespace

pytestmark = pytest.mark.root


@pytest.mark.parametrize("ends", [("a", "core"), ("d", "sw")])
def test_link_down(faults: Faults, watch: Watch, ends: tuple[str, str]) -> None:
    """Nothing passes; afterwards all routes and neighbours of both ends are there again."""
    before = [watch.routes(node) for node in ends]
    assert watch.reaches(ends[0], "c")
    with faults.active(LinkDown(link=ends)):
        assert not watch.reaches(ends[0], "c")
        assert "LOWER_UP" not in str(watch.links(ends[0])["eth0"]["flags"])
        assert watch.reaches("b", "c")
    assert watch.reaches(ends[0], "c")
    await_true(
        lambda: [_settled(watch, node) for node in ends] == [_only_ours(lines) for lines in before], "the routes"
    )


def _settled(watch: Watch, node: str) -> list[str]:
    return _only_ours(watch.routes(node))


def _only_ours(lines: list[str]) -> list[str]:
    """Without neighbours that were learnt, which come and go."""
    return [line for line in lines if "lladdr" not in line or "PERMANENT" in line]


def test_link_down_twice_is_refused(faults: Faults) -> None:
    """The second one would set the link up when it is healed, while the first one holds."""
    with (
        faults.active(LinkDown(link=("a", "core"))) as first,
        pytest.raises(FaultBusy, match=rf"state of link a:eth0--core:to-a is held by fault {first.id}"),
    ):
        faults.inject(LinkDown(link=("core", "a:eth0")))


def test_link_flap(faults: Faults, watch: Watch) -> None:
    """As many losses as asked for, by the kernel's own count, and the link is up between and after."""
    before = watch.carrier_changes("core", "to-b")
    entry = faults.inject(LinkFlap(link=("b", "core"), period="300ms", count=2, down="100ms"))

    def losses() -> int:
        return len(watch.events(kind="fault", fault="link-down", phase="healed", parent=entry.id))

    await_true(lambda: losses() == 2, "two losses")
    assert watch.carrier_changes("core", "to-b") - before >= 4
    assert watch.reaches("b", "c")
    faults.heal(entry)
    assert watch.reaches("b", "c")


def test_link_flap_healed_while_it_is_down(faults: Faults, watch: Watch) -> None:
    """Healing ends the flapping and sets the link up."""
    entry = faults.inject(LinkFlap(link=("b", "core"), period="60s", count=9))
    assert not watch.reaches("b", "c")
    faults.heal(entry)
    assert faults.entries() == []
    assert watch.reaches("b", "c")


@pytest.mark.parametrize(
    "first, second, pair",
    [("a", "core", ("a", "c")), ("core", "a", ("c", "a")), ("d", "sw", ("d", "c")), ("sw", "d", ("c", "d"))],
)
def test_one_way_cut(faults: Faults, watch: Watch, first: str, second: str, pair: tuple[str, str]) -> None:
    """Packets are lost one way and pass the other way; the carrier stays."""
    source, target = pair
    receiver, sender = _listen(watch, target), _listen(watch, source)
    with receiver, sender, faults.active(OneWayCut(link=(first, second))):
        sender.sendto(b"there", (watch.address(target), receiver.getsockname()[1]))
        receiver.sendto(b"back", (watch.address(source), sender.getsockname()[1]))
        assert sender.recv(9) == b"back"
        with pytest.raises(TimeoutError):
            receiver.recv(9)
        assert "LOWER_UP" in str(watch.links(second)[_interface(watch.lab, first, second)]["flags"])
    assert watch.reaches(source, target)


def _listen(watch: Watch, node: str) -> socket.socket:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((watch.address(node), 0))
        made.settimeout(0.3)
        return made

    return namespace.inside(watch.lab.namespace(node), make)


def _interface(lab: Lab, first: str, second: str) -> str:
    return next(link.end(second).ifname for link in lab.plan.links_of(first) if link.peer(first).node == second)


def test_mtu_shrink(faults: Faults, watch: Watch) -> None:
    """A packet of just that size passes unfragmented, one byte more does not; senders are told by ICMP."""
    headers = 28
    with faults.active(MtuShrink(link=("b", "core"), mtu=900)):
        assert watch.reaches("c", "b", "-M", "do", "-s", str(900 - headers))
        said = watch.inside("c", "ping", "-n", "-c2", "-i0.2", "-M", "do", "-s", str(901 - headers), watch.address("b"))
        assert said.returncode != 0
        assert "mtu = 900" in said.stdout + said.stderr or "mtu=900" in said.stdout + said.stderr
        assert not watch.reaches("b", "c", "-M", "do", "-s", str(901 - headers))
    watch.inside("c", "ip", "route", "flush", "cache")  # the lower path MTU that it has learnt
    assert watch.reaches("c", "b", "-M", "do", "-s", str(1500 - headers))


def test_mtu_shrink_must_shrink(faults: Faults) -> None:
    """Anything else is a mistake."""
    with pytest.raises(FaultError, match="is 1500, which 1500 does not shrink"):
        faults.inject(MtuShrink(link=("b", "core"), mtu=1500))


@pytest.mark.parametrize("node, mbit", [("a", 5), ("b", 5)])
def test_degrade_rate(faults: Faults, watch: Watch, node: str, mbit: int) -> None:
    """A link with another rate, and one that had none, carry no more than the fault's; then as much as before."""
    with faults.active(Degrade(link=(node, "core"), rate=f"{mbit}mbit", direction="forward")):
        assert _throughput(watch, node, "c") < mbit * 1.2
        assert _throughput(watch, "c", node) > mbit * 2, "the other direction is as before"
    assert _throughput(watch, node, "c") > mbit * 2


def _throughput(watch: Watch, source: str, target: str, seconds: float = 0.5) -> float:
    """Mbit/s of one TCP connection, once it is under way."""
    server = namespace.inside(watch.lab.namespace(target), lambda: socket.create_server((watch.address(target), 0)))
    client = namespace.inside(watch.lab.namespace(source), socket.socket)
    over = threading.Event()

    def send() -> None:
        client.connect(server.getsockname())
        client.settimeout(5)
        while not over.is_set():
            try:
                client.send(bytes(1 << 14))
            except OSError:
                return

    thread = threading.Thread(target=send)
    thread.start()
    with server, client:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10)
            warm = 0
            while warm < 150_000:
                warm += len(connection.recv(1 << 16))
            began, total = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                total += len(connection.recv(1 << 16))
            took = time.monotonic() - began
            over.set()
    thread.join()
    return total * 8 / took / 1e6


HEALED_QUIETLY = [
    Degrade(link=("a", "core"), rate="10mbit"),
    Degrade(link=("b", "core"), rate="10mbit"),
    MtuShrink(link=("b", "core"), mtu=1000),
]


@pytest.mark.parametrize("fault", HEALED_QUIETLY, ids=lambda fault: f"{fault.kind}-{fault.link[0]}")
def test_c11_healing_loses_nothing_on_the_link_itself(faults: Faults, watch: Watch, fault: Fault) -> None:
    """C11: not one packet of a ping over the link, neither when the fault begins nor when it is healed."""
    with watch.no_loss(fault.link[0], "c"), faults.active(fault):  # type: ignore[attr-defined]
        time.sleep(0.2)


@pytest.mark.parametrize("fault", [LinkDown(link=("a", "core")), OneWayCut(link=("a", "core"))], ids=lambda f: f.kind)
def test_c11_healing_disturbs_no_other_traffic(faults: Faults, watch: Watch, fault: Fault) -> None:
    """C11: a ping through the same router loses nothing."""
    with watch.no_loss("b", "c"), faults.active(fault):
        time.sleep(0.1)


def test_c11_foreign_queueing_disciplines_stay(faults: Faults, watch: Watch) -> None:
    """C11: what somebody else has put on an interface is neither changed nor removed."""
    tbf = "tbf rate 1gbit burst 1mb latency 50ms"
    watch.inside("c", "tc", *f"qdisc add dev eth0 root handle 99: {tbf}".split())
    before = watch.inside("c", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "99:" in before
    try:
        with faults.active(MtuShrink(link=("c", "core"), mtu=1000)), faults.active(OneWayCut(link=("core", "c"))):
            pass
        with pytest.raises(TestbedError):
            faults.inject(Degrade(link=("c", "core"), rate="1mbit"))
        assert watch.inside("c", "tc", "qdisc", "show", "dev", "eth0").stdout == before
    finally:
        watch.inside("c", "tc", "qdisc", "del", "dev", "eth0", "root")


def test_unknown_links_are_named(faults: Faults) -> None:
    """Before anything is touched."""
    with pytest.raises(TestbedError, match=re.escape("fault link-down: there is no node 'aa'")):
        faults.inject(LinkDown(link=("aa", "core")))
    with pytest.raises(TestbedError, match=re.escape("there is no link between a and b")):
        faults.inject(LinkDown(link=("a", "b")))
    assert faults.entries() == []


def test_degrade_delay_and_loss(faults: Faults, watch: Watch) -> None:
    """Delay is one way in each direction that is degraded; the link is as quick as before afterwards."""
    assert _round_trip(watch, "b", "c") < 20
    with faults.active(Degrade(link=("b", "core"), delay="30ms")):
        assert 60 <= _round_trip(watch, "b", "c") < 90
        with pytest.raises(FaultBusy):
            faults.inject(Degrade(link=("b", "core"), loss="50%"))
    assert _round_trip(watch, "b", "c") < 20
    with faults.active(Degrade(link=("core", "b"), delay="30ms", direction="forward")):
        assert 30 <= _round_trip(watch, "b", "c") < 55
    with faults.active(Degrade(link=("b", "core"), loss="100%")):
        assert not watch.reaches("b", "c")
    assert watch.reaches("b", "c")


def _round_trip(watch: Watch, source: str, target: str) -> float:
    """Shortest of some, milliseconds."""
    said = watch.inside(source, "ping", "-n", "-c8", "-i0.02", watch.address(target)).stdout
    return float(re.search(r"= ([0-9.]+)/", said)[1])  # type: ignore[index]


def test_degrade_that_was_broken_off_is_healed(faults: Faults, watch: Watch) -> None:
    """Whoever injected it died between the kernel's change and the rest: healing undoes it all the same."""
    link = links.find(watch.lab, "a", "core")
    before = links.impairment(watch.lab, link)
    fault = Degrade(link=("a", "core"), rate="2mbit")
    memory = fault.remember(watch.lab)
    fault.inject(watch.lab, memory)
    assert "rate 2Mbit" in watch.inside("a", "tc", "qdisc", "show", "dev", "eth0").stdout
    fault.heal(watch.lab, memory)
    fault.verify_healed(watch.lab, memory)
    assert "rate 50Mbit" in watch.inside("a", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert links.impairment(watch.lab, link) == before


def test_c15_degrade_that_somebody_undoes_is_seen(watch: Watch) -> None:
    """C15: verification asks the kernel, not the record."""
    fault = Degrade(link=("b", "core"), rate="2mbit")
    memory = fault.remember(watch.lab)
    fault.inject(watch.lab, memory)
    fault.verify(watch.lab, memory)
    watch.inside(
        "b",
        "tc",
        "qdisc",
        "replace",
        "dev",
        "eth0",
        "root",
        "handle",
        "7b00:",
        "tbf",
        *["rate", "9mbit", "burst", "5kb", "latency", "50ms"],
    )
    with pytest.raises(FaultError, match="rate of eth0"):
        fault.verify(watch.lab, memory)
    fault.heal(watch.lab, memory)
    fault.verify_healed(watch.lab, memory)


def test_faults_of_a_link_that_is_impaired(faults: Faults, watch: Watch) -> None:
    """Whatever carries it: it goes down and up, one way only, and with another size, and keeps its delay."""
    pair = ("b", "core")
    with faults.active(Degrade(link=pair, delay="10ms")):
        with faults.active(LinkDown(link=pair)):
            assert not watch.reaches("b", "c")
        assert watch.reaches("b", "c")
        with faults.active(OneWayCut(link=pair)), faults.active(MtuShrink(link=pair, mtu=1000)):
            assert not watch.reaches("b", "c")
        assert 20 <= _round_trip(watch, "b", "c") < 60
        assert watch.reaches("b", "c", "-M", "do", "-s", "1472")
    assert _round_trip(watch, "b", "c") < 20


def test_degrade_waits_for_an_exchange(faults: Faults, watch: Watch) -> None:
    """A link that is to be made anew must not be down meanwhile: its fault would vanish."""
    link = links.find(watch.lab, "c", "core")
    with faults.active(LinkDown(link=("c", "core"))):
        if watch.lab.record.impair == "wire":
            with pytest.raises(FaultBusy, match="in the hands of fault link-down"):
                faults.inject(Degrade(link=("c", "core"), delay="1ms"))
        else:
            faults.heal(faults.inject(Degrade(link=("c", "core"), delay="1ms")))
    with faults.active(LinkDown(link=("b", "core"))), faults.active(Degrade(link=("c", "core"), delay="1ms")):
        pass  # another link of the same router may be down
    assert links.impairment(watch.lab, link) == (link.forward, link.backward)
