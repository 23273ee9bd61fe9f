"""Death, hang, restart, and the end of the wire."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from waiting import await_true
from wire_traffic import (
    ANY_CORE,
    MakeWorld,
    Stream,
    addresses_and_routes,
    events,
    has_carrier,
    link_name,
    reaches,
    round_trips,
)

from bench.wire_world import World, pair, star
from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.lab import ownership
from testbed.net.wire import engine, native
from testbed.net.wire.control import Wire
from testbed.net.wire.state import TapEnd, WireLink
from testbed.runtime.base import start_time

pytestmark = pytest.mark.root


def core_pid(world: World) -> int:
    """The core's process id."""
    with world.wire() as wire:
        pid = wire.status().pid
    assert pid is not None
    return pid


def test_killed_core_is_replaced(make_world: MakeWorld) -> None:
    """kill -9 under traffic: another core carries the links with their live values, in order, with addresses and
    routes as they were; death and restart are events."""
    world = make_world(pair(delay="10ms"))
    name = link_name(world)
    kept = {node: addresses_and_routes(world, node) for node in "ab"}
    with world.wire() as wire, Stream(world) as stream:
        wire.change(name, forward={"delay_us": 30_000}, backward={"jitter_us": 2000})
        live = wire.links()
        old = core_pid(world)
        stream.send(range(200), pause=0.001)
        os.kill(old, signal.SIGKILL)
        stream.send(range(200, 400), pause=0.001)
        await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
        assert wire.links() == live
        status = wire.status()
        assert status.pid not in (old, None)
        assert status.starts == 2
        await_true(lambda: reaches(world), "the link")
        stream.send(range(1000, 1100), pause=0.001)
        numbers = [arrival.number for arrival in stream.receive(10**6, last=1099)]
        assert numbers == sorted(set(numbers))
        assert numbers[-100:] == list(range(1000, 1100))
        counters = wire.statistics()[name]["forward"].counters
        assert counters.in_flight == 0
    assert {node: addresses_and_routes(world, node) for node in "ab"} == kept
    times = round_trips(world)
    assert 38 - 0.2 <= times[len(times) // 2] < 75
    (died,), (restarted,) = events(world, "wire-died"), events(world, "wire-restarted")
    assert died["pid"] == old
    assert "SIGKILL" in died["how"]
    assert died["t"] <= restarted["t"]
    assert restarted["seconds"] == pytest.approx(restarted["t"] - died["t"], abs=0.5)
    assert died["node"] == ""
    assert died["wall"] > 1e9


def test_link_fails_closed(make_world: MakeWorld) -> None:
    """Without a core there is no carrier and nothing passes; with the next one there is."""
    world = make_world(pair(delay="1ms"))
    assert has_carrier(world, "a")
    pid = core_pid(world)
    os.kill(world.supervisor, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        await_true(lambda: not has_carrier(world, "a") and not has_carrier(world, "b"), "the loss of the carrier")
        assert not reaches(world, within=0.3)
    finally:
        os.kill(world.supervisor, signal.SIGCONT)
    await_true(lambda: reaches(world), "the link")
    assert has_carrier(world, "a")
    with world.wire() as wire:
        assert wire.statistics()[link_name(world)]["backward"].counters.lost == 0


def test_hanging_core_is_replaced(make_world: MakeWorld) -> None:
    """A core that is stopped for longer than it may be is taken for hung: ended, replaced, and an event."""
    world = make_world(pair(delay="1ms"), hang=0.3)
    old = core_pid(world)
    os.kill(old, signal.SIGSTOP)
    await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
    (hung,) = events(world, "wire-hung")
    assert hung["pid"] == old
    assert not Path(f"/proc/{old}").exists()
    assert core_pid(world) != old
    await_true(lambda: reaches(world), "the link")


def test_short_stop_loses_nothing(make_world: MakeWorld) -> None:
    """A core that is stopped for a moment is late, but drops nothing and is not replaced."""
    world = make_world(pair(delay="1ms"), hang=60)
    pid = core_pid(world)
    with Stream(world) as stream:
        os.kill(pid, signal.SIGSTOP)
        stream.send(range(1000))
        os.kill(pid, signal.SIGCONT)
        assert [arrival.number for arrival in stream.receive(1000)] == list(range(1000))
    assert core_pid(world) == pid


@ANY_CORE
def test_change_while_the_core_hangs(make_world: MakeWorld) -> None:
    """A change asked of a core that hangs is in force once it has been replaced, and is answered then."""
    world = make_world(pair(delay="1ms"), hang=0.3)
    with world.wire() as wire:
        os.kill(core_pid(world), signal.SIGSTOP)
        assert wire.change(link_name(world), forward={"delay_us": 30_000}).forward.delay_us == 30_000
        await_true(lambda: reaches(world), "the link")
    times = round_trips(world)
    assert times[0] >= 31 - 0.2


def test_cut_link_stays_cut_through_a_restart(make_world: MakeWorld) -> None:
    """A link that is down is down in the next core too."""
    world = make_world(pair(delay="1ms"))
    with world.wire() as wire:
        wire.set_up(link_name(world), False)
        os.kill(core_pid(world), signal.SIGKILL)
        await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
        assert not reaches(world, within=0.3)
        assert not has_carrier(world, "b")
        wire.set_up(link_name(world), True)
        await_true(lambda: reaches(world), "the link")


@ANY_CORE
def test_dying_again_and_again(make_world: MakeWorld) -> None:
    """Six deaths in a row, and the wire still comes back; they are all in the events."""
    world = make_world(star(3, delay="1ms"))
    for count in range(1, 7):
        os.kill(core_pid(world), signal.SIGKILL)
        await_true(lambda count=count: len(events(world, "wire-restarted")) == count, "the restart")
    await_true(lambda: reaches(world, "h1", "h3"), "the link")
    assert len(events(world, "wire-died")) == 6


@ANY_CORE
def test_namespace_that_is_gone(make_world: MakeWorld) -> None:
    """After a restart a link without one of its nodes is closed, with the reason; the others are carried."""
    world = make_world(star(2, delay="1ms"))
    ownership.namespace.remove(world.path("h1"))
    os.kill(core_pid(world), signal.SIGKILL)
    await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
    with world.wire() as wire:
        status = wire.status()
        assert list(status.closed) == [world.plan.links[0].name]
        wire.change(world.plan.links[0].name, forward={"delay_us": 5})
    await_true(lambda: reaches(world, "h2", "core"), "the other link")
    assert events(world, "wire-link-closed")[0]["link"] == world.plan.links[0].name


@ANY_CORE
def test_killed_supervisor_is_replaced(make_world: MakeWorld) -> None:
    """kill -9 of the supervisor takes the core along, and the guard brings both back: with live settings, addresses,
    routes and counters as they were, and the frames that were lost in flight are told."""
    world = make_world(pair(delay="1ms"))
    name = link_name(world)
    kept = {node: addresses_and_routes(world, node) for node in "ab"}
    with world.wire() as wire, Stream(world) as stream:
        wire.change(name, forward={"delay_us": 300_000})
        await_true(lambda: "300000" in (world.folder / "wire.json").read_text(), "the state on disk")
        before = wire.status()
        stream.send(range(50))
        await_true(lambda: wire.statistics()[name]["forward"].counters.frames >= 50, "the frames")
        os.kill(before.supervisor, signal.SIGKILL)
        await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
    with engine.connect(world.folder) as wire:
        after = wire.status()
        assert after.guard == before.guard
        assert after.supervisor != before.supervisor
        assert after.pid not in (before.pid, None)
        assert start_time(before.pid or 0) is None
        assert wire.links()[name].forward.delay_us == 300_000
        assert wire.statistics()[name]["forward"].counters.frames >= 50
        wire.change(name, forward={"delay_us": 20_000})
    await_true(lambda: reaches(world), "the link")
    assert round_trips(world, 5)[0] >= 21 - 0.2
    assert {node: addresses_and_routes(world, node) for node in "ab"} == kept
    (died,), (restarted,) = events(world, "wire-died"), events(world, "wire-restarted")
    assert died["pid"] == before.supervisor
    assert died["how"] == "its supervisor was ended by SIGKILL"
    assert restarted["pid"] == after.pid
    assert restarted["frames_lost"] > 0
    assert restarted["seconds"] >= 0


@ANY_CORE
def test_killed_guard_is_replaced(make_world: MakeWorld) -> None:
    """kill -9 of the guard disturbs no frame; the supervisor starts another one, which does what the first did."""
    world = make_world(pair(delay="1ms"))
    with world.wire() as wire, Stream(world) as stream:
        before = wire.status()
        os.kill(before.guard, signal.SIGKILL)
        stream.send(range(200), pause=0.001)
        await_true(lambda: bool(events(world, "wire-guard-restarted")), "another guard")
        assert [arrival.number for arrival in stream.receive(200)] == list(range(200))
        after = wire.status()
    assert after.guard not in (before.guard, 0)
    assert (after.supervisor, after.pid) == (before.supervisor, before.pid)
    assert not events(world, "wire-died")
    assert events(world, "wire-guard-died")[0]["pid"] == before.guard
    await_true(lambda: "guard" in Path(f"/proc/{after.guard}/cmdline").read_text(), "its being at work")
    os.kill(after.supervisor, signal.SIGKILL)
    await_true(lambda: bool(events(world, "wire-restarted")), "the restart")
    await_true(lambda: reaches(world), "the link")
    with engine.connect(world.folder) as wire:
        assert wire.status().guard == after.guard


@ANY_CORE
def test_all_of_it_is_killed(make_world: MakeWorld) -> None:
    """With guard and supervisor both gone the links are closed, and clients are told. ``revive`` starts all again with
    the values that they had; of a wire that is alive it leaves its hands."""
    world = make_world(pair(delay="1ms"))
    assert not engine.revive(world.folder)
    with world.wire() as wire:
        wire.change(link_name(world), forward={"delay_us": 20_000})
        await_true(lambda: "20000" in (world.folder / "wire.json").read_text(), "the state on disk")
        status = wire.status()
    assert status.pid
    os.kill(status.guard, signal.SIGSTOP)
    os.kill(status.supervisor, signal.SIGKILL)
    os.kill(status.guard, signal.SIGKILL)
    for pid in (status.guard, status.supervisor, status.pid):
        await_true(lambda pid=pid: start_time(pid) is None, "the end of all of it")
    await_true(lambda: not has_carrier(world, "a"), "the loss of the carrier")
    with pytest.raises(TestbedError, match=r"no answer.*\n.*it was killed"):
        engine.connect(world.folder)
    assert engine.revive(world.folder)
    assert not engine.revive(world.folder)
    await_true(lambda: reaches(world), "the link")
    assert round_trips(world, 5)[0] >= 21 - 0.2
    assert [event["how"] for event in events(world, "wire-died")] == ["guard and supervisor were gone"]
    assert len(events(world, "wire-restarted")) == 1


@ANY_CORE
def test_everything_ends_with_the_lab(make_world: MakeWorld) -> None:
    """All its processes carry the lab's mark, so clean-up finds them; nothing restarts what it ends."""
    world = make_world(pair(delay="1ms"))
    found = ownership.processes(world.id)
    with world.wire() as wire:
        status = wire.status()
    assert {status.guard, status.supervisor, status.pid} == set(found)
    world.down()
    assert not ownership.processes(world.id)
    assert start_time(world.supervisor) is None


@ANY_CORE
def test_nothing_of_the_host_is_in_reach(make_world: MakeWorld) -> None:
    """Supervisor and core run in a network namespace with nothing but a dead loopback."""
    world = make_world(pair(delay="1ms"))
    for pid in (world.supervisor, core_pid(world)):
        assert os.stat(f"/proc/{pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in lines] == ["lo"]
        assert Path(f"/proc/{pid}/net/route").read_text().count("\n") <= 1


@ANY_CORE
def test_start_without_taps_fails_clearly(core: str, tmp_path: Path) -> None:
    """What cannot be opened is named, and nothing is left running."""
    link = WireLink("x--y", TapEnd("/run/netns/tb-nowhere-x", "eth0"), TapEnd("/run/netns/tb-nowhere-y", "eth0"))
    with pytest.raises(ApplyError, match="link x--y: cannot enter /run/netns/tb-nowhere-x: No such file"):
        engine.start(tmp_path, "0badcafe", [link])
    await_true(lambda: not ownership.processes("0badcafe"), "the end of it")


@ANY_CORE
@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent", "/bin/cat"])
def test_core_that_cannot_run(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Where the program does not work, the core in Python takes over, and an event says so."""
    world = make_world(pair(delay="1ms"), command=[program])
    with world.wire() as wire:
        assert wire.status().core == "python"
    assert events(world, "wire-core-unusable")[0]["command"] == program
    assert reaches(world)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a compiler there is the core in Python; a program that has been compiled is used without one."""
    monkeypatch.setattr(native, "_FOLDERS", (tmp_path,))
    monkeypatch.setattr(native, "_COMPILERS", ())
    assert native.command() == native.PYTHON
    monkeypatch.undo()
    monkeypatch.setattr(native, "_FOLDERS", (tmp_path,))
    (program,) = native.command()
    assert Path(program).parent == tmp_path
    monkeypatch.setattr(native, "_COMPILERS", ())
    assert native.command() == (program,)


@ANY_CORE
def test_wait_for_a_stopped_supervisor(make_world: MakeWorld) -> None:
    """A client does not wait for ever."""
    world = make_world(pair(delay="1ms"))
    os.kill(world.supervisor, signal.SIGSTOP)
    try:
        with Wire(world.folder, timeout=0.2) as wire, pytest.raises(WaitTimeout, match="the answer to 'status'"):
            wire.status()
    finally:
        os.kill(world.supervisor, signal.SIGCONT)
    with world.wire() as wire:
        assert wire.status().pid


@ANY_CORE
def test_events_are_lines_of_json(make_world: MakeWorld) -> None:
    """The wire writes events as the lab does."""
    world = make_world(pair(delay="1ms"))
    lines = (world.folder / "events.jsonl").read_text().splitlines()
    started = json.loads(lines[0])
    assert started["kind"] == "wire-started"
    assert {"t", "wall", "node", "pid", "core", "real_time", "links"} <= set(started)
