"""One trial: a fresh lab, a schedule of faults, what must hold afterwards, and the host as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.faults.chaos.invariants import SETTLE, Violation, look, pairs_of, violations
from testbed.faults.faults import Faults
from testbed.faults.runner import Done, Timeline
from testbed.faults.timeline import Planned
from testbed.lab import snapshot
from testbed.lab.events import Follower
from testbed.lab.revival import Caretaker
from testbed.lab.state import lab_id
from testbed.lab.up import up
from testbed.plan.types import Plan, RuntimeName

if TYPE_CHECKING:
    from testbed.lab.lab import Lab, Listener
    from testbed.net.impair import EngineName

_BESIDE = 120.0
"""Seconds that the faults themselves may take beyond their times: injecting, verifying, healing."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where trials are made."""

    plan: Plan
    name: str
    """Of the lab; each trial's has the same."""
    runtime: RuntimeName | None = None
    impair: EngineName | None = None
    listener: Listener | None = None
    settle: float = SETTLE
    """Seconds after healing until which everything must be as before."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a trial."""

    violations: tuple[Violation, ...]
    done: tuple[Done, ...]
    """What became of each fault that was begun."""

    @property
    def kinds(self) -> frozenset[str]:
        """Of the violations."""
        return frozenset(violation.kind for violation in self.violations)


def trial(bench: Bench, planned: Sequence[Planned]) -> Verdict:
    """Run a schedule on a fresh lab. TestbedError if the lab itself does not come up."""
    before = snapshot.take()
    lab = up(bench.plan, bench.name, runtime=bench.runtime, impair=bench.impair, owner=os.getpid())
    follower = None
    try:
        if bench.listener is not None:
            lab.listeners.append(bench.listener)
            follower = Follower(lab.folder, bench.listener)
        with Caretaker(lab.folder):
            found, done = _inside(lab, planned, bench.settle)
    finally:
        if follower is not None:
            follower.stop()
        lab.down()
    return Verdict((*found, *_host(before, bench.name)), done)


def _inside(lab: Lab, planned: Sequence[Planned], settle: float) -> tuple[list[Violation], tuple[Done, ...]]:
    pairs = pairs_of(lab, lab.plan.seed)
    first = look(lab, pairs)
    timeline = Timeline(lab, planned, tolerant=True)
    found = []
    length = max((one.at_us + (one.hold_us or 0) for one in planned), default=0) / 1e6
    try:
        timeline.run(length + _BESIDE)
    except TestbedError as error:
        found.append(Violation("fault", str(error)))
    try:
        # Whatever the timeline has not healed itself is a violation, and no reason to leave it so.
        left = [entry.id for entry in Faults(lab).entries()]
        found += [Violation("left", f"fault {identity} after the timeline's end") for identity in left]
        Faults(lab).heal_all()
    except TestbedError as error:
        found.append(Violation("heal", str(error)))
    return found + violations(lab, first, pairs, settle), tuple(timeline.done)


def _host(before: snapshot.Snapshot, name: str, timeout: float = 3.0) -> list[Violation]:
    """What of the host is not as before; looked at again for a moment, since the kernel tidies up on its own time."""
    deadline = time.monotonic() + timeout
    while True:
        lines = snapshot.difference(before, snapshot.take(), ours=[lab_id(name)])
        if not lines or time.monotonic() > deadline:
            return [Violation("host", line) for line in lines]
        time.sleep(0.2)
