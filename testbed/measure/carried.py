"""What a lab's userspace wire says of the links that it carried: recorded at a run's end, and judged.

A wire that dropped frames for want of room, or that sent them much later than they were due, was the bottleneck, and
the run's links were not what their topology says.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.lab import revival
from testbed.net.wire.control import Traffic
from testbed.net.wire.state import STATE

if TYPE_CHECKING:
    from testbed.measure.store import Run

LATE_US = 4096
"""A hundredth of a link's frames may leave later than due by more than this. Twice the docs' promise, in the counters'
steps of powers of two; delays of a few milliseconds would be off by as much as they say."""
FEWEST_FRAMES = 1000
"""A direction that carried fewer is not judged by its lateness."""


def record_carried(folder: Path, run: Run) -> None:
    """Record each direction's counters as events ``carried``, and mark the run INVALID where the wire fell short.

    ``folder`` is the lab's; nothing is done for a lab without a wire.
    """
    if not (folder / STATE).exists():
        return
    try:
        with revival.wire(folder) as wire:
            if not wire.status().real_time:
                run.event("wire-not-in-real-time")
            statistics = wire.statistics()
    except TestbedError as error:
        run.invalid(f"what the links have carried is not known: {error}")
        return
    for link, directions in statistics.items():
        for direction, traffic in directions.items():
            late = traffic.lateness_us(0.99)
            counters = {**asdict(traffic.counters), "overflowed": traffic.overflowed}
            run.event("carried", link=link, direction=direction, late_us=late, **counters)
            for reason in shortcomings(traffic):
                run.invalid(f"link {link} ({direction}): {reason}")


def shortcomings(traffic: Traffic) -> list[str]:
    """Why one direction was not what its topology says; empty if it was."""
    counters, reasons = traffic.counters, []
    if counters.full:
        reasons.append(f"the wire dropped {counters.full} of {counters.frames} frames for want of room")
    late = traffic.lateness_us(0.99)
    if late > LATE_US and counters.frames >= FEWEST_FRAMES:
        reasons.append(f"one frame in a hundred left more than {late // 2} us later than it was due")
    return reasons
