"""One run of a timeline: what is due is begun on time, each fault in a thread of its own, so that none waits for one
that is slow to take or to heal."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.base import Fault, FaultBusy, make_fault
from testbed.faults.faults import HEAL_TIMEOUT, Faults
from testbed.faults.journal import Entry
from testbed.faults.timeline import Condition, Planned
from testbed.lab.events import Tail

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

MOST_AT_ONCE = 32
"""Faults that are being injected or healed at the same time; what is due beyond that waits."""
INJECT_TIMEOUT = 60.0
"""Seconds for which the end of a timeline waits for faults that are still being injected, to heal them as well."""
_LOOK = 0.02
"""Seconds between two looks at the lab's events while something waits for one."""
_AFTERMATH = 3.0
"""Seconds for which programs may need to be themselves again after a fault was healed."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one fault of the schedule; times in seconds from the timeline's start."""

    planned: Planned
    due: float
    injected: float | None
    """When it had taken; None: it was left out, since another fault was in its way."""
    healed: float | None = None


@dataclass(slots=True, eq=False)
class _Fault:
    """A fault of the schedule, and how far it is."""

    number: int
    """Those that were begun earlier have lower ones."""
    planned: Planned
    due: float
    """When the plan wants it; it may have to wait."""
    what: Fault | None = None
    """Once it has been begun."""
    claims: frozenset[str] = frozenset()
    """What no other fault may change meanwhile."""
    entry: Entry | None = None
    """While it holds."""
    injected: float | None = None

    def is_over_by(self, due: float) -> bool:
        """Whether the plan has it healed by then."""
        hold = 0 if self.what and self.what.momentary else self.planned.hold_us
        return hold is not None and self.due + hold / 1e6 <= due


@dataclass(order=True, slots=True)
class _Step:
    """Begin a fault at a time, or heal it if it holds."""

    when: float
    order: int
    fault: _Fault = field(compare=False)


class Run:
    """The run, in the caller's thread. Everything but ``done`` is for that thread only, or under the lock."""

    def __init__(
        self, lab: Lab, faults: Faults, planned: Sequence[Planned], stopping: threading.Event, *, tolerant: bool
    ) -> None:
        """``stopping`` ends it early, once ``wake`` has been called. ``tolerant``: see ``Timeline``."""
        self._lab, self._faults = lab, faults
        self._stopping, self._tolerant = stopping, tolerant
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._steps: list[_Step] = []
        self._parked: list[_Fault] = []
        """Waiting for the end of an earlier one that has what they will change."""
        self._at_work: list[_Fault] = []
        """Being injected or healed."""
        self._holding: dict[int, _Fault] = {}
        self._healed: set[str] = set()
        self._done: dict[int, Done] = {}
        self._failures: list[BaseException] = []
        self._order = self._begun = 0
        self._waiting = [one for one in planned if one.when]
        self._events = Tail(lab.folder)
        for one in planned:
            if not one.when:
                self._plan(one, one.at_us / 1e6)

    @property
    def done(self) -> list[Done]:
        """What has been injected or left out, in the order of time."""
        with self._lock:
            return [self._done[number] for number in sorted(self._done)]

    def wake(self) -> None:
        """Look again at what is to be done."""
        self._changed.set()

    def everything(self) -> None:
        """Until nothing is left to be done, or it is to stop, or a fault did not take: that is raised."""
        while True:
            self._changed.clear()
            with self._lock:
                if self._failures:
                    raise self._failures[0]
                if self._stopping.is_set() or not (self._steps or self._waiting or self._parked or self._at_work):
                    return
                self._begin_what_is_due()
                pause = self._steps[0].when - self._now() if self._steps else None
            if self._waiting:
                pause = _LOOK if pause is None else min(pause, _LOOK)
                self._look()
            if pause is None or pause > 0 or len(self._at_work) >= MOST_AT_ONCE:
                self._changed.wait(pause if pause is None or pause > 0 else None)

    def heal_rest(self) -> None:
        """Heal what still holds, all at once, and what is still being injected once it is. The first error is raised
        when all have been tried; WaitTimeout says what has not come to an end."""
        with self._lock:
            self._steps.clear()
            self._parked.clear()
        deadline = time.monotonic() + INJECT_TIMEOUT + HEAL_TIMEOUT
        while True:
            self._changed.clear()
            with self._lock:
                for fault in sorted(self._holding.values(), key=lambda one: -one.number):
                    self._work(fault, self._heal)
                left = [f"{fault.planned.fault} (due at {fault.due:g} s)" for fault in self._at_work]
            if not left:
                break
            if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() > deadline:
                raise WaitTimeout("the timeline's faults to be healed", INJECT_TIMEOUT + HEAL_TIMEOUT, ", ".join(left))
        if self._failures:
            raise self._failures[0]

    def _begin_what_is_due(self) -> None:
        while self._steps and self._steps[0].when <= self._now() and len(self._at_work) < MOST_AT_ONCE:
            fault = heapq.heappop(self._steps).fault
            if fault.entry:
                self._work(fault, self._heal)
                continue
            if fault.what is None:
                self._begun += 1
                fault.number = self._begun
                fault.what = make_fault(fault.planned.fault, fault.planned.settings)
                with suppress(TestbedError):  # the injection will say it
                    fault.claims = frozenset(fault.what.claims(self._lab))
            if self._must_wait(fault):
                self._parked.append(fault)
            else:
                self._work(fault, self._inject)

    def _must_wait(self, fault: _Fault) -> bool:
        """Whether a fault that by the plan would be over already has what this one will change: on a busy machine
        things come late, and one after the other all the same. Not so if the plan itself lets the two meet."""
        others = (*self._at_work, *self._holding.values(), *self._parked)
        return any(other.claims & fault.claims and other.is_over_by(fault.due) for other in others)

    def _work(self, fault: _Fault, work: Callable[[_Fault], None]) -> None:
        self._at_work.append(fault)
        self._holding.pop(fault.number, None)

        def run() -> None:
            failure: BaseException | None = None
            try:
                work(fault)
            except BaseException as error:
                failure = error
            with self._lock:
                self._at_work.remove(fault)
                if failure is not None:
                    self._failures.append(failure)
                for one in [one for one in self._parked if one is not fault]:
                    self._parked.remove(one)
                    self._push(self._now(), one)
            self._changed.set()

        threading.Thread(target=run, name=f"timeline-{fault.planned.fault}", daemon=True).start()

    def _inject(self, fault: _Fault) -> None:
        planned, what = fault.planned, fault.what
        assert what
        try:
            entry = self._faults.inject(what)
        except TestbedError as error:
            with self._lock:
                if isinstance(error, FaultBusy) and self._gives_way_soon(error.holder, fault):
                    return
                others = self._tolerant and self._is_disturbed(fault)
                if not planned.drawn or not (isinstance(error, FaultBusy) or others):
                    raise
                self._done[fault.number] = Done(planned, fault.due, None)
            self._event(what, "left-out", fault=planned.fault, message=str(error))
            return
        with self._lock:
            fault.injected = now = self._now()
            self._done[fault.number] = Done(planned, fault.due, now, now if what.momentary else None)
            if not what.momentary:
                fault.entry = entry
                self._holding[fault.number] = fault
                if planned.hold_us is not None:
                    self._push(now + planned.hold_us / 1e6, fault)
        self._event(what, "injected", fault=entry.id, due=fault.due, taken=now)

    def _gives_way_soon(self, holder: str, fault: _Fault) -> bool:
        """Have a fault wait for, or follow, another one of ours that is in its way though it claims something else."""
        found = [one for one in (*self._at_work, *self._holding.values()) if one.entry and one.entry.id == holder]
        if any(one.is_over_by(fault.due) for one in found):
            self._parked.append(fault)
        elif holder in self._healed:
            self._push(self._now(), fault)
        else:
            return False
        return True

    def _heal(self, fault: _Fault) -> None:
        assert fault.entry
        self._faults.heal(fault.entry)
        with self._lock:
            self._healed.add(fault.entry.id)
            fault.entry = None
            self._done[fault.number] = Done(fault.planned, fault.due, fault.injected, self._now())

    def _is_disturbed(self, by: _Fault) -> bool:
        """Whether another fault holds, comes or goes, or has done so until a moment ago."""
        ends = [one.healed for one in self._done.values() if one.injected is not None]
        others = any(one is not by for one in (*self._holding.values(), *self._at_work))
        return others or any(end is not None and self._now() - end < _AFTERMATH for end in ends)

    def _look(self) -> None:
        """Whether an event that something waits for has come."""
        for event in self._events.new():
            for planned in [one for one in self._waiting if one.when and _matches(one.when, event)]:
                self._waiting.remove(planned)
                with self._lock:
                    self._plan(planned, event["t"] - self._start + planned.at_us / 1e6)

    def _plan(self, planned: Planned, due: float) -> None:
        self._push(due, _Fault(0, planned, due))

    def _push(self, when: float, fault: _Fault) -> None:
        self._order += 1
        heapq.heappush(self._steps, _Step(when, self._order, fault))

    def _event(self, what: Fault, phase: str, **detail: object) -> None:
        self._lab.event("timeline", what.subject(), phase=phase, **detail)

    def _now(self) -> float:
        return time.monotonic() - self._start


def _matches(condition: Condition, event: dict[str, object]) -> bool:
    return event["kind"] == condition.event and condition.node in (None, event["node"])
