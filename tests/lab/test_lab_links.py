"""Impaired links in whole labs: engines, live changes, exchange of a plain link, the wire's end with the lab."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import await_true

from testbed.errors import PreflightError, TestbedError
from testbed.lab import links, ownership, revival, snapshot
from testbed.lab.down import reap
from testbed.lab.events import Follower
from testbed.lab.lab import Lab
from testbed.lab.state import lab_id
from testbed.lab.up import attach, up
from testbed.net import impair, namespace
from testbed.net.wire import engine as wire_engine
from testbed.net.wire.control import Wire
from testbed.plan.types import Impairment, Plan, Service

pytestmark = pytest.mark.root
MakePlan = Callable[..., Plan]
ENGINES = [engine for engine in ("netem", "wire") if os.geteuid() == 0 and not impair.lack(engine)]


def round_trip_ms(lab: Lab, source: str, target: str, count: int = 12) -> float:
    """The fastest of a few round trips: a busy machine makes others late, and none early."""
    address = str(lab.plan.address(target))
    answered = lab.exec(source, ["ping", "-n", "-A", f"-c{count}", "-W2", address], check=True).stdout
    return min(map(float, re.findall(r"time=([\d.]+)", answered)))


def star(make_plan: MakePlan, **first: object) -> Plan:
    """Three hosts around core; ``first`` is what the first link does."""
    nodes = {"a": None, "b": None, "c": None}
    return make_plan(nodes=nodes, links=[{"endpoints": ["a", "core"], **first}, ["b", "core"], ["c", "core"]])


def test_a_link_that_is_up_again_carries_the_first_packet(state: Path, make_plan: MakePlan) -> None:
    """The end that came up first has a carrier before the kernel lets it send; that is waited for."""
    lab = up(make_plan(nodes={"a": None, "b": None}, links=[["a", "b"]]))
    (link,) = lab.plan.links
    there = (str(lab.plan.address("b")), 7)
    sender, receiver = (
        namespace.inside(lab.namespace(node), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for node in "ab"
    )
    with sender, receiver:
        receiver.bind(there)
        receiver.settimeout(5)
        for number in range(40):
            for up_again in (False, True):
                for end in (link.a, link.b):
                    links.set_admin_state(lab, end, up=up_again)
            sender.sendto(bytes([number]), there)
            assert receiver.recv(9) == bytes([number])


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> impair.EngineName:
    """Each engine that this kernel can run."""
    name = impair.check_name(request.param)
    assert name
    return name


def test_c12_delay_is_one_way(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """C12: a link's delay is for each direction, so that a round trip takes it twice; directions may differ."""
    lab = up(star(make_plan, delay="30ms", backward={"delay": "10ms"}), impair=engine)
    assert lab.record.impair == engine
    assert 40 <= round_trip_ms(lab, "a", "b") < 55
    assert round_trip_ms(lab, "b", "c") < 15


def test_host_is_left_alone(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """The engine's process and devices go with the lab."""
    before = snapshot.take()
    lab = up(star(make_plan, delay="5ms", rate="50mbit"), impair=engine)
    lab.down()
    assert ownership.processes(lab.id) == {}
    assert snapshot.difference(before, snapshot.take(), ours=[lab.id]) == []


def test_live_change(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """One property changes and the others stay, in the kernel and in what the lab says of the link."""
    lab = up(star(make_plan, delay="10ms", rate="50mbit"), impair=engine)
    link = links.find(lab, "a", "core")
    forward, backward = links.impairment(lab, link)
    links.change(lab, link, forward.model_copy(update={"delay_us": 40_000}))
    assert links.impairment(attach(lab.name), link) == (
        Impairment(delay_us=40_000, rate_bps=50_000_000),
        backward,
    )
    assert 50 <= round_trip_ms(lab, "a", "b") < 65
    links.change(lab, link, Impairment(), Impairment())
    assert round_trip_ms(lab, "a", "b") < 15


def test_plain_link_is_impaired_live(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """A link that was made without impairment takes a delay while the lab runs, keeping addresses and routes."""
    lab = up(star(make_plan), impair=engine)
    assert round_trip_ms(lab, "a", "b") < 15
    link = links.find(lab, "b", "core")
    links.change(lab, link, Impairment(delay_us=20_000), Impairment(delay_us=20_000, rate_bps=30_000_000))
    assert 40 <= round_trip_ms(lab, "a", "b") < 55
    assert round_trip_ms(lab, "a", "c") < 15
    assert links.missing(lab, link.a) == links.missing(lab, link.b) == []
    links.change(lab, link, Impairment(), Impairment())
    assert round_trip_ms(lab, "a", "b") < 15


def test_link_down_and_up(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """A delayed link that was set down carries again, with its delay, once it is up."""
    lab = up(star(make_plan, delay="10ms"), impair=engine)
    link = links.find(lab, "a", "core")
    for end in (link.a, link.b):
        links.set_admin_state(lab, end, up=False)
    address = str(lab.plan.address("b"))
    assert lab.exec("a", ["ping", "-c1", "-W1", address]).returncode != 0
    for end in (link.a, link.b):
        links.set_admin_state(lab, end, up=True)
    assert 20 <= round_trip_ms(lab, "a", "b") < 35


def test_c15_an_engine_that_is_not_there_is_refused(state: Path, make_plan: MakePlan) -> None:
    """C15: what the kernel cannot do is refused before anything is touched, never silently left out."""
    missing = [name for name in ("netem", "wire") if impair.lack(name)]
    if not missing:
        pytest.skip("this kernel has both engines")
    engine = impair.check_name(missing[0])
    plan = star(make_plan, delay="10ms")
    with pytest.raises(PreflightError, match=f"{engine}: "):
        up(plan, "refused", impair=engine)
    with pytest.raises(TestbedError, match="there is no lab"):
        attach("refused")


@pytest.mark.skipif("wire" not in ENGINES, reason="needs TUN")
def test_wire_is_restarted_with_live_values(state: Path, make_plan: MakePlan) -> None:
    """After its process was killed the wire carries again, with the changed delay; both are events of the lab."""
    lab = up(star(make_plan, delay="10ms"), impair="wire")
    link = links.find(lab, "a", "core")
    links.change(lab, link, Impairment(delay_us=30_000), Impairment(delay_us=30_000))
    with Wire(lab.folder) as wire:
        before = wire.status()
        assert before.pid
        os.kill(before.pid, 9)
        while (after := wire.status()).pid in (None, before.pid):
            pass  # each question waits for the wire; there is a time-out in it
    assert after.starts == before.starts + 1
    assert 60 <= round_trip_ms(lab, "a", "b") < 75
    events = (lab.folder / "events.jsonl").read_text()
    assert "wire" in events


@pytest.mark.skipif("wire" not in ENGINES, reason="needs TUN")
def test_wire_that_was_killed_whole(state: Path, make_plan: MakePlan) -> None:
    """With all of the wire killed, the links are closed until somebody looks after the lab: whoever has it in use, who
    changes a link, or the next command. Death and revival are events for whoever listens."""
    lab = up(star(make_plan, delay="10ms"), impair="wire")
    link = links.find(lab, "a", "core")
    heard: list[str] = []
    follower = Follower(lab.folder, lambda t, kind, node, detail: heard.append(kind))

    def kill() -> None:
        with revival.wire(lab.folder) as wire:
            status = wire.status()
        os.kill(status.guard, signal.SIGSTOP)  # lest it is faster than we are
        os.kill(status.supervisor, signal.SIGKILL)
        os.kill(status.guard, signal.SIGKILL)
        await_true(lambda: not wire_engine.is_watched(lab.folder), "the end of the wire")

    kill()
    assert links.impairment(lab, link)[0].delay_us == 10_000
    links.change(lab, link, Impairment(delay_us=30_000), Impairment(delay_us=30_000))
    assert 60 <= round_trip_ms(lab, "a", "b") < 75
    kill()
    reap()
    assert 60 <= round_trip_ms(lab, "a", "b") < 75
    with revival.Caretaker(lab.folder):
        kill()
        await_true(lambda: wire_engine.is_watched(lab.folder), "the wire")
        revival.wire(lab.folder).close()  # waits until it answers
        assert 60 <= round_trip_ms(lab, "a", "b") < 75
        lab.down()
    follower.stop()
    assert ownership.processes(lab.id) == {}
    assert [kind for kind in heard if kind in ("wire-died", "wire-restarted")] == ["wire-died", "wire-restarted"] * 3


@pytest.mark.engine
@pytest.mark.skipif("wire" not in ENGINES, reason="needs TUN")
def test_container_on_the_wire(state: Path, make_plan: MakePlan) -> None:
    """A container's link can be delayed, and is wired again when the container was made anew."""
    from testbed.faults.base import make_fault
    from testbed.faults.faults import own_faults

    plan = make_plan(
        nodes={"a": {"runtime": "container"}, "b": None},
        links=[{"endpoints": ["a", "core"], "delay": "20ms"}, ["b", "core"]],
    )
    lab = up(plan, impair="wire")
    assert 40 <= round_trip_ms(lab, "b", "a") < 55
    own_faults(lab).inject(make_fault("recreate", {"node": "a"}))
    assert 40 <= round_trip_ms(lab, "b", "a") < 55


def test_command(state: Path, make_plan: MakePlan, engine: impair.EngineName) -> None:
    """`testbed link` shows a link, changes one property in both directions or one, and says what is wrong."""
    lab = up(star(make_plan, delay="10ms"), impair=engine)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "testbed", "link", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert run("a", "core").stdout.splitlines() == [
        "a:eth0 -> core:to-a  up  delay 10ms",
        "core:to-a -> a:eth0  up  delay 10ms",
    ]
    assert run("core", "a", "--loss", "1%", "--one-way").stdout.splitlines() == [
        "a:eth0 -> core:to-a  up  delay 10ms",
        "core:to-a -> a:eth0  up  delay 10ms, loss 1%",
    ]
    assert "down" in run("a", "core", "--down").stdout
    assert run("a", "core", "--up").stdout.count("  up  ") == 2
    wrong = run("a", "core", "--delay", "10")
    assert wrong.returncode == 1
    assert "--delay" in wrong.stderr
    assert "unit" in wrong.stderr
    assert "there is no link between a and b" in run("a", "b").stderr
    assert round_trip_ms(lab, "a", "b") >= 20


def test_cycles_leave_nothing(state: Path, make_plan: MakePlan) -> None:
    """Labs that come and go in one process leave no descriptor, thread, zombie or namespace."""
    plan = star(make_plan, delay="1ms")
    plan = plan.model_copy(
        update={
            "nodes": tuple(
                node.model_copy(update={"services": (Service(name="nap", argv=("sleep", "300")),)})
                for node in plan.nodes
                if node.kind == "host"
            )
            + tuple(node for node in plan.nodes if node.kind != "host")
        }
    )

    def count() -> tuple[int, int, int, int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        left = ownership.namespaces(lab_id(plan.name))
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(children), len(left)

    up(plan).down()
    before = count()
    for _ in range(5):
        up(plan).down()
    assert count() == before
