"""What the wire says of itself at the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.lab.up import up
from testbed.measure.carried import LATE_US, record_carried, shortcomings
from testbed.measure.store import Run, RunReader
from testbed.net import impair
from testbed.net.wire.control import Traffic
from testbed.net.wire.protocol import LATENESS_BUCKETS, Counters
from testbed.plan.types import Plan


def traffic(late_us: int = 0, **counters: int) -> Traffic:
    """All frames late by about ``late_us``."""
    lateness = [0] * LATENESS_BUCKETS
    lateness[late_us.bit_length()] = counters.get("frames", 0)
    return Traffic(Counters(**counters), lateness, 0)


def test_what_falls_short() -> None:
    """Room, and lateness of frames enough."""
    assert shortcomings(traffic(frames=5000)) == []
    assert shortcomings(traffic(late_us=LATE_US // 2, frames=5000)) == []
    assert "later than it was due" in shortcomings(traffic(late_us=4 * LATE_US, frames=5000))[0]
    assert shortcomings(traffic(late_us=4 * LATE_US, frames=5)) == []
    assert "dropped 3 of 5 frames" in shortcomings(traffic(frames=5, full=3))[0]


@pytest.mark.root
@pytest.mark.skipif(bool(impair.lack("wire")), reason="needs TUN")
def test_a_wire_is_recorded(state: Path, tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    """Each direction of each link that the wire carries is an event; a lab without one has none."""
    plan = make_plan(nodes={"a": None, "b": None}, links=[{"endpoints": ["a", "b"], "delay": "1ms"}])
    run = Run.create(tmp_path, "carried", plan, seed=0)
    lab = up(plan, impair="wire")
    lab.exec("a", ["ping", "-c3", "-i0.01", str(plan.address("b"))], check=True)
    record_carried(lab.folder, run)
    lab.down()
    record_carried(lab.folder, run)
    run.close("passed")
    events = RunReader(run.path).events("carried")
    assert sorted(event.detail["direction"] for event in events) == ["backward", "forward"]
    assert all(event.detail["delivered"] >= 3 for event in events)
    assert run.invalid_reasons == []
