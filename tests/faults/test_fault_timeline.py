"""Running timelines: at their times, in the order of time, everything healed however it ends."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultBusy, FaultError, Memory
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.pause import Pause
from testbed.faults.runner import Timeline
from testbed.faults.timeline import parse, schedule
from testbed.lab.lab import Lab

pytestmark = pytest.mark.root


def timeline(lab: Lab, *entries: dict[str, Any]) -> Timeline:
    made, problems = parse(entries)
    assert problems == []
    return Timeline(lab, schedule(made, 1))


def test_run(lab: Lab, watch: Watch) -> None:
    """Overlapping faults, one repeated, one momentary: all at their time, and none left."""
    made = timeline(
        lab,
        {"at": "+0.2s", "fault": "link-down", "link": ["a", "core"], "for": "1s"},
        {"at": "+0.4s", "fault": "pause", "node": "b", "for": "200ms", "every": "600ms", "times": 2},
        {"at": "+0.3s", "fault": "restart", "node": "a", "service": "polite"},
    )
    done = made.run(60)
    assert [one.planned.fault for one in done] == ["link-down", "restart", "pause", "pause"]
    for one in done:
        assert one.injected is not None
        assert one.healed is not None
        assert one.injected >= one.due
        if one.planned.hold_us is not None:
            assert one.healed - one.injected >= one.planned.hold_us / 1e6
    assert Faults(lab).entries() == []
    assert watch.reaches("a", "b")
    phases = [event["phase"] for event in watch.events(kind="timeline")]
    assert phases[-6:] == ["start", *["injected"] * 4, "end"]


def test_beside_a_block(lab: Lab, watch: Watch) -> None:
    """What has no end holds to the end of the block, which also ends what is still to come."""
    entries = [
        {"at": "+0s", "fault": "link-down", "link": ["a", "core"]},
        {"at": "+1h", "fault": "pause", "node": "b", "for": "1s"},
    ]
    made = timeline(lab, *entries)
    with made:
        await_true(lambda: Faults(lab).entries() and Faults(lab).entries()[0].state == "active", "the fault")
        assert not watch.reaches("a", "b")
        with pytest.raises(WaitTimeout, match="1 of 2 faults"):
            made.wait(0.1)
    assert watch.reaches("a", "b")
    assert [one.planned.fault for one in made.done] == ["link-down"]


def test_exception_in_the_block(lab: Lab, watch: Watch) -> None:
    """Healed all the same."""

    def scenario() -> None:
        with timeline(lab, {"at": "+0s", "fault": "link-down", "link": ["a", "core"]}):
            await_true(lambda: not watch.reaches("a", "b"), "the fault")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scenario()
    assert watch.reaches("a", "b")


def test_conditions(lab: Lab) -> None:
    """An entry that waits for an event of a node begins after it, and not after that of another node."""
    made = timeline(
        lab, {"when": {"event": "test-begun", "node": "b"}, "at": "+0.3s", "fault": "pause", "node": "c", "for": "0.1s"}
    )
    with made:
        lab.event("test-begun", "a")
        time.sleep(0.5)
        assert made.done == []
        began = time.monotonic()
        lab.event("test-begun", "b")
        made.wait(30)
        assert time.monotonic() - began >= 0.4
    (done,) = made.done
    assert done.injected is not None
    assert done.injected >= done.due >= 0.8


def test_a_fault_that_does_not_take_ends_it(lab: Lab, watch: Watch) -> None:
    """With its error, once the others are healed."""
    made = timeline(
        lab,
        {"at": "+0s", "fault": "link-down", "link": ["a", "core"]},
        {"at": "+0.1s", "fault": "pause", "node": "core"},
    )
    with pytest.raises(FaultError, match="nothing runs in node core"):
        made.run(30)
    assert watch.reaches("a", "b")
    assert watch.events(kind="timeline", phase="end")[-1]["failed"]


def test_drawn_faults_give_way(lab: Lab) -> None:
    """One that was drawn is left out where another is in its way; one that was asked for is an error."""
    cut = {"fault": "link-down", "link": ["a", "core"]}
    drawn = {"random": {"faults": [cut], "min": "100ms", "max": "100ms", "until": "+150ms"}}
    made = timeline(lab, {"at": "+0s", **cut}, drawn)
    with made:
        made.wait(30)
    assert [one.injected is None for one in made.done] == [False, True]
    made = timeline(lab, {"at": "+0s", **cut}, {"at": "+0.1s", **cut})
    with pytest.raises(FaultBusy):
        made.run(30)


def test_again(lab: Lab) -> None:
    """A timeline can be run twice."""
    made = timeline(lab, {"at": "+0s", "fault": "pause", "node": "b", "for": "50ms"})
    assert len(made.run(30)) == len(made.run(30)) == 1


def test_what_comes_late_does_not_meet_itself(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first one is still there when the second one is due, which then waits for its end."""
    inject = Pause.inject

    def slowly(self: Pause, lab: Lab, memory: Memory) -> None:
        time.sleep(0.4)
        inject(self, lab, memory)

    monkeypatch.setattr(Pause, "inject", slowly)
    made = timeline(lab, {"at": "+0s", "fault": "pause", "node": "b", "for": "0.2s", "every": "0.3s", "times": 3})
    done = made.run(60)
    assert len(done) == 3
    for one, later in pairwise(done):
        assert one.healed is not None
        assert later.injected is not None
        assert one.healed <= later.injected


def test_none_waits_for_one_that_is_slow(lab: Lab, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one fault blocks in its injection, and another one in its healing, those that are due come and go. The
    end of the timeline heals what was still being injected as well."""
    blocked, go_on = threading.Event(), threading.Event()
    inject, heal = Pause.inject, Kill.heal

    def block(self: Pause, lab: Lab, memory: Memory) -> None:
        if self.node == "c":
            blocked.set()
            assert go_on.wait(60)
        inject(self, lab, memory)

    def block_too(self: Kill, lab: Lab, memory: Memory) -> None:
        assert go_on.wait(20)
        heal(self, lab, memory)

    monkeypatch.setattr(Pause, "inject", block)
    monkeypatch.setattr(Kill, "heal", block_too)
    cut = {"fault": "link-down", "link": ["a", "core"], "for": "0.1s"}
    made = timeline(
        lab,
        {"at": "+0s", "fault": "pause", "node": "c", "for": "0.1s"},
        {"at": "+0s", "fault": "kill", "node": "a", "service": "polite", "for": "0.05s"},
        {"at": "+0.1s", "fault": "pause", "node": "b", "for": "0.2s", "every": "0.4s", "times": 2},
        {"at": "+0.3s", **cut},
    )
    made.start()
    await_true(lambda: sum(one.healed is not None for one in made.done) == 3, "all that are not blocked")
    assert blocked.is_set()
    assert sorted(one.planned.fault for one in made.done if one.healed) == ["link-down", "pause", "pause"]
    assert {entry.kind: entry.state for entry in Faults(lab).entries()} == {"pause": "injecting", "kill": "healing"}
    ending = threading.Thread(target=made.stop)
    ending.start()
    go_on.set()
    ending.join()
    assert Faults(lab).entries() == []
    assert [one.healed is not None for one in made.done] == [True] * 5
    assert watch.reaches("a", "b")
