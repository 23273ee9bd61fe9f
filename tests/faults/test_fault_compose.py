"""Faults made of faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from fault_world import Watch
from waiting import await_true

from testbed.errors import TestbedError
from testbed.faults.base import FaultError, make_fault
from testbed.faults.blackhole import Blackhole
from testbed.faults.compose import Repeated, TimedOut, Together
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.link_down import LinkDown
from testbed.faults.pause import Pause
from testbed.faults.restart import Restart
from testbed.lab.down import reap
from testbed.lab.lab import Lab

pytestmark = pytest.mark.root

CUT = LinkDown(link=("a", "core"))


def test_settings_make_the_same_fault_again() -> None:
    """As the journal needs it."""
    for fault in (
        Together([CUT, Pause(node="a"), TimedOut(Kill(node="b"), 1.5)]),
        Repeated(CUT, 2, 3, hold=0.5),
        TimedOut(Blackhole(nodes=["a"], target="10.0.0.0/8"), 3),
    ):
        again = make_fault(fault.kind, json.loads(json.dumps(fault.model_dump(mode="json"))))
        assert again == fault


def test_together(faults: Faults, watch: Watch) -> None:
    """Both hold, both are healed; a momentary one among them is over."""
    before = watch.pid("b", "clock")
    with faults.active(Together([CUT, Pause(node="c"), Restart(node="b", service="clock")])) as entry:
        assert not watch.reaches("a", "b")
        assert watch.state(watch.pid("c", "web")) == "T"
        assert watch.pid("b", "clock") != before
        parts = [one for one in faults.entries() if one.parent]
        assert [one.kind for one in parts] == ["link-down", "pause"]
        assert {one.parent for one in parts} == {entry.id}
    assert watch.reaches("a", "b")
    assert watch.state(watch.pid("c", "web")) in "SR"


def test_together_all_or_none(faults: Faults, watch: Watch) -> None:
    """The second one makes no sense, so the first one is healed."""
    with pytest.raises(FaultError, match="nothing runs in node core"):
        faults.inject(Together([CUT, Pause(node="core")]))
    assert faults.entries() == []
    assert watch.reaches("a", "b")


def test_together_must_fit(faults: Faults) -> None:
    """What the parts name is looked at before anything is done."""
    with pytest.raises(TestbedError, match="no node 'x'"):
        faults.inject(Together([CUT, Pause(node="x")]))


def test_timed_out_without_whoever_began_it(lab: Lab, watch: Watch) -> None:
    """Its end comes although the process that injected it was killed, and nobody gives a command."""
    script = """
import os, signal, sys
from testbed.faults.compose import TimedOut
from testbed.faults.link_down import LinkDown
from testbed.faults.faults import own_faults
from testbed.lab.up import attach
own_faults(attach(sys.argv[1])).inject(TimedOut(LinkDown(link=("a", "core")), 1.5))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, lab.name], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    (entry,) = watch.events(kind="fault", fault="link-down", phase="verified")[-1:]
    await_true(lambda: watch.events(kind="fault", id=entry["id"], phase="healed"), "its end")
    (healed,) = watch.events(kind="fault", id=entry["id"], phase="healed")
    assert healed["t"] - entry["t"] >= 1.2  # type: ignore[operator]
    assert watch.reaches("a", "b")
    reap()
    assert Faults(lab).entries() == []


def test_repeated(faults: Faults, watch: Watch) -> None:
    """So many times, each for so long; between them it is healed."""
    began = time.monotonic()
    entry = faults.inject(Repeated(Pause(node="b"), 0.6, 3, hold=0.2))

    def turns(phase: str) -> list[dict[str, object]]:
        return watch.events(kind="fault", fault="pause", phase=phase, parent=entry.id)

    await_true(lambda: len(turns("healed")) == 3, "three turns")
    starts = [event["t"] for event in turns("verified")]
    assert len(starts) == 3
    assert all(start - began >= 0.6 * turn for turn, start in enumerate(starts)), "none is early"  # type: ignore[operator]
    time.sleep(0.1)
    assert len(turns("start")) == 3
    assert watch.state(watch.pid("b", "clock")) in "SR"
    faults.heal(entry)


def test_repeated_that_fails(faults: Faults) -> None:
    """The error of the first injection is told, although another program made it."""
    with pytest.raises(FaultError, match="nothing runs in node core"):
        faults.inject(Repeated(Pause(node="core"), 1, 2))
    assert faults.entries() == []
