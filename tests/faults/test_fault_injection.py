"""Whatever happens to whoever injects a fault: one that did not take is an error, and all are healed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, ClassVar

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory, known_faults, make_fault
from testbed.faults.blackhole import Blackhole
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.link_down import LinkDown
from testbed.faults.link_flap import LinkFlap
from testbed.faults.pause import Pause
from testbed.lab.down import reap
from testbed.lab.lab import Lab

pytestmark = pytest.mark.root

EXAMPLES: dict[str, dict[str, Any]] = {
    "blackhole": {"nodes": ["a"], "target": "b"},
    "clock-skew": {"node": "a", "skew": "+1h"},
    "connection-flood": {"nodes": ["a"], "target": "c", "port": 8080, "duration": "5s"},
    "cpu-throttle": {"node": "d", "share": "20%"},
    "crash-loop": {"node": "a", "service": "polite", "period": "60s", "count": 2, "down": "1s"},
    "degrade": {"link": ["a", "core"], "rate": "1mbit"},
    "disk-full": {"node": "a"},
    "drop-port": {"nodes": ["a"], "port": 8080},
    "failing-upstream": {"node": "c", "port": 8080},
    "kill": {"node": "a", "service": "polite"},
    "link-down": {"link": ["b", "core"]},
    "link-flap": {"link": ["b", "core"], "period": "60s", "count": 2},
    "memory-limit": {"node": "d", "limit": "64MiB"},
    "mtu-shrink": {"link": ["b", "core"], "mtu": 1000},
    "one-way-cut": {"link": ["a", "core"]},
    "partition": {"groups": [["a"], ["b"]]},
    "pause": {"node": "a"},
    "recreate": {"node": "a"},
    "restart": {"node": "a", "service": "polite"},
    "slow-requests": {"nodes": ["a"], "target": "c", "port": 8080, "duration": "5s"},
    "slow-upstream": {"node": "c", "port": 8080, "delay": "100ms"},
    "stop": {"node": "a", "service": "polite"},
}
ENGINE_ONLY = {"disk-full", "recreate"}
IN_A_HELPER = {"crash-loop", "link-flap"}
"""Their ``inject`` waits for the proof itself."""


def test_every_fault_has_an_example() -> None:
    assert set(EXAMPLES) == {kind for kind, fault in known_faults().items() if not fault.combines}


@pytest.mark.parametrize("kind", sorted(set(EXAMPLES) - ENGINE_ONLY - IN_A_HELPER))
def test_c15_a_fault_that_does_nothing_is_found_out(faults: Faults, watch: Watch, kind: str) -> None:
    """C15: with an injection that silently does nothing, each fault's own check fails, and nothing is left of it."""

    class Idle(type(make_fault(kind, EXAMPLES[kind]))):  # type: ignore[misc]
        kind: ClassVar[str] = ""

        def inject(self, lab: Lab, memory: Memory) -> None:
            pass

    with pytest.raises(TestbedError):
        faults.inject(Idle.model_validate(EXAMPLES[kind]))
    assert faults.entries() == []


@pytest.mark.parametrize("kind", sorted(set(EXAMPLES) - ENGINE_ONLY - IN_A_HELPER))
def test_healing_twice_is_healing_once(faults: Faults, lab: Lab, kind: str) -> None:
    """As it happens when whoever heals is killed before it can say so; and before anything was injected."""
    fault = make_fault(kind, EXAMPLES[kind])
    memory = {**fault.remember(lab), "id": f"{kind}-999"}
    (lab.folder / "faults").mkdir(exist_ok=True)
    fault.heal(lab, memory)
    fault.verify_healed(lab, memory)
    fault.inject(lab, memory)
    fault.verify(lab, memory)
    fault.heal(lab, memory)
    fault.heal(lab, memory)
    fault.verify_healed(lab, memory)


def test_events_of_a_fault(faults: Faults, watch: Watch) -> None:
    """Start, verified, healed; each with its time and what was seen."""
    with faults.active(Kill(node="a", service="polite")) as entry:
        pass
    events = watch.events(kind="fault", id=entry.id)
    assert [event["phase"] for event in events] == ["start", "verified", "healed"]
    assert [event["node"] for event in events] == ["a"] * 3
    assert events[0]["settings"] == {"node": "a", "service": "polite"}
    times = [event["t"] for event in events]
    assert times == sorted(times)  # type: ignore[type-var]
    assert "gone" in str(events[1]["seen"])


def test_numbers_are_not_used_again(faults: Faults) -> None:
    """An event names one fault for ever."""
    ids = []
    for _ in range(2):
        with faults.active(Blackhole(nodes=["a"], target="b")) as entry:
            ids.append(entry.id)
    assert len(set(ids)) == 2


INJECTOR = """
import sys, time
from testbed.faults.base import make_fault
from testbed.faults.faults import own_faults
from testbed.lab.up import attach
faults = own_faults(attach(sys.argv[1]))
import json
for kind, settings in json.loads(sys.argv[2]):
    faults.inject(make_fault(kind, settings))
print("done", flush=True)
time.sleep(600)
"""


def _injector(lab: Lab, *wanted: Fault) -> subprocess.Popen[str]:
    what = json.dumps([(fault.kind, fault.model_dump(mode="json")) for fault in wanted])
    return subprocess.Popen(
        [sys.executable, "-c", INJECTOR, lab.name, what], stdout=subprocess.PIPE, text=True, env=os.environ
    )


def test_killed_injector_is_cleaned_up_after(lab: Lab, watch: Watch) -> None:
    """kill -9 of whoever injected faults, and the next command heals them, also one that has a helper at work."""
    cut, pause = LinkDown(link=("a", "core")), Pause(node="b")
    with _injector(lab, cut, pause, LinkFlap(link=("c", "core"), period="10s", count=100)) as injector:
        assert injector.stdout is not None
        assert injector.stdout.readline() == "done\n"
        reap()
        assert len(Faults(lab).entries()) == 4, "nobody touches the faults of a living process"
        assert not watch.reaches("a", "b")
        injector.send_signal(signal.SIGKILL)
    reap()
    assert Faults(lab).entries() == []
    assert watch.reaches("a", "b")
    assert watch.reaches("b", "c")
    assert watch.state(watch.pid("b", "clock")) in "SR"


@pytest.mark.parametrize("moment", ["remembered", "injected", "healing"])
def test_killed_in_the_middle(lab: Lab, watch: Watch, moment: str) -> None:
    """At whichever step it dies."""
    script = f"""
import os, signal, sys
from testbed.faults.faults import own_faults
from testbed.faults.link_down import LinkDown
from testbed.lab.up import attach
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
class Deadly(LinkDown):
    def inject(self, lab, memory):
        {"die()" if moment == "remembered" else "super().inject(lab, memory)"}
    def verify(self, lab, memory):
        {"die()" if moment == "injected" else "return super().verify(lab, memory)"}
    def heal(self, lab, memory):
        {"die()" if moment == "healing" else "super().heal(lab, memory)"}
import testbed.faults.faults as module
module.make_fault = lambda kind, settings: Deadly.model_validate(settings)
faults = own_faults(attach(sys.argv[1]))
faults.heal(faults.inject(Deadly(link=("a", "core"))))
"""
    done = subprocess.run([sys.executable, "-c", script, lab.name], env=os.environ, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(Faults(lab).entries()) == 1
    assert watch.reaches("a", "b") == (moment == "remembered")
    reap()
    assert Faults(lab).entries() == []
    assert watch.reaches("a", "b")


def test_interrupt_heals(lab: Lab, watch: Watch) -> None:
    """Ctrl-C in a block with a fault."""
    faults = Faults(lab)
    with pytest.raises(KeyboardInterrupt), faults.active(LinkDown(link=("a", "core"))):
        raise KeyboardInterrupt
    assert watch.reaches("a", "b")


class Hanging(Blackhole):
    """One whose healing does not come back, the first time."""

    kind: ClassVar[str] = "hanging"
    combines: ClassVar[bool] = True
    hangs: ClassVar[threading.Event] = threading.Event()

    def heal(self, lab: Lab, memory: Memory) -> None:
        if not self.hangs.is_set():
            self.hangs.wait(30)
        super().heal(lab, memory)


def test_c22_healing_that_hangs(faults: Faults, watch: Watch) -> None:
    """C22: healing has a time-out and says what it left; the fault stays known, others are healed all the same."""
    Hanging.hangs.clear()
    other = faults.inject(LinkDown(link=("b", "core")))
    entry = faults.inject(Hanging(nodes=["a"], target="c"))
    began = time.monotonic()
    with pytest.raises(WaitTimeout) as info:
        faults.heal_all(timeout=0.5)
    assert time.monotonic() - began < 10
    said = str(info.value)
    assert f"fault {entry.id} to be healed" in said
    assert "left: node a: table testbed_" in said
    assert f"testbed fault heal {entry.id}" in said
    assert [one.id for one in faults.entries()] == [entry.id]
    assert faults.entries()[0].state == "healing"
    assert watch.reaches("b", "c"), f"{other.id} was healed"
    assert watch.events(id=entry.id, phase="not-healed")
    Hanging.hangs.set()
    faults.heal_all()
    assert watch.reaches("a", "c")


class Stubborn(Blackhole):
    """One whose healing does nothing."""

    kind: ClassVar[str] = "stubborn"
    combines: ClassVar[bool] = True
    gives_in: ClassVar[list[bool]] = []

    def heal(self, lab: Lab, memory: Memory) -> None:
        if self.gives_in:
            super().heal(lab, memory)


def test_healing_that_does_nothing_is_found_out(faults: Faults) -> None:
    """As in the other direction."""
    Stubborn.gives_in.clear()
    entry = faults.inject(Stubborn(nodes=["a"], target="c"))
    with pytest.raises(FaultError, match="is still there"):
        faults.heal(entry)
    assert [one.id for one in faults.entries()] == [entry.id]
    Stubborn.gives_in.append(True)
    faults.heal_all()


def test_two_heal_the_same_fault(lab: Lab, watch: Watch) -> None:
    """One does it, the others find it done."""
    faults = Faults(lab)
    entry = faults.inject(LinkDown(link=("a", "core")))
    outcomes: list[bool] = []
    threads = [threading.Thread(target=lambda: outcomes.append(Faults(lab).heal(entry))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, False, False, True]
    assert len(watch.events(id=entry.id, phase="healed")) == 1
    assert watch.reaches("a", "b")


def test_c20_helpers_are_found_by_their_mark_alone(faults: Faults, watch: Watch) -> None:
    """C20: another program of the same name and arguments, which is not of this fault, is left alone."""
    entry = faults.inject(LinkFlap(link=("b", "core"), period="10s", count=50))
    command = [sys.executable, "-c", "import time; time.sleep(60)", "-m", "testbed.faults.tools.cycle"]
    with subprocess.Popen(command) as bystander:
        faults.heal(entry)
        assert bystander.poll() is None
        bystander.kill()
    await_true(lambda: watch.reaches("b", "c"), "the link")


def test_the_lab_may_go_while_faults_are_active(lab: Lab) -> None:
    """In another process the lab is gone: healing what was in it is no error."""
    from testbed.faults.journal import Journal

    journal = Journal(lab.folder / "not-there")
    entry = Faults(lab).inject(Blackhole(nodes=["a"], target="b"))
    with journal.held(entry, 1) as current:
        assert current is None
    Faults(lab).heal(entry)
