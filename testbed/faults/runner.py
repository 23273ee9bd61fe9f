"""Running a schedule of faults in a lab: one thread, all times recorded, everything healed at the end."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.base import FaultBusy, make_fault
from testbed.faults.faults import own_faults
from testbed.faults.journal import Entry
from testbed.faults.timeline import Condition, Planned, parse, schedule, timeline_text
from testbed.lab.events import Tail
from testbed.lab.revival import Keeper

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

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


class Timeline:
    """The faults of a schedule. It begins with ``start``, ``run`` or ``with``, and heals what it did when it ends.

    Faults without an end hold until ``stop``. ``tolerant``: a drawn fault that does not take while another one holds,
    or shortly after, is left out too; what it needs to be seen may be what the other one takes away.
    """

    def __init__(self, lab: Lab, planned: Sequence[Planned], *, tolerant: bool = False) -> None:
        self.planned = list(planned)
        self.tolerant = tolerant
        self.done: list[Done] = []
        self._lab = lab
        self._faults = own_faults(lab)
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @classmethod
    def of(cls, lab: Lab) -> Timeline:
        """That of the lab's topology, drawn by its seed."""
        entries, _ = parse(lab.plan.sections["timeline"]["entries"])
        return cls(lab, schedule(entries, lab.plan.seed))

    def text(self) -> str:
        """The schedule as a ``timeline:`` that reproduces it."""
        return timeline_text(self.planned)

    def start(self) -> None:
        """Begin, and return at once. TestbedError if it runs already."""
        if self._thread is not None:
            raise TestbedError("the timeline runs already", remedy="stop it first")
        self.done, self._failure = [], None
        self._stopping.clear()
        self._idle.clear()
        self._thread = threading.Thread(target=self._work, name="timeline", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every fault was injected and those with an end are healed; raises what went wrong meanwhile.

        WaitTimeout says what is still to come.
        """
        if not self._idle.wait(timeout):
            done = len(self.done)
            raise WaitTimeout("the timeline", timeout or 0, f"{done} of {len(self.planned)} faults have been injected")
        if self._failure:
            self.stop()

    def stop(self) -> None:
        """End now, and heal everything; raises what went wrong. Nothing happens if it does not run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        thread.join()
        if self._failure:
            raise self._failure

    def run(self, timeout: float | None = None) -> list[Done]:
        """From the beginning to the end."""
        with self:
            self.wait(timeout)
        return self.done

    def __enter__(self) -> Timeline:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        run = _Run(self, time.monotonic())
        self._lab.event("timeline", phase="start", faults=len(self.planned))
        try:
            with Keeper(self._lab.folder):
                run.everything()
                self._idle.set()
                self._stopping.wait()
        except BaseException as error:
            self._failure = error
        finally:
            try:
                run.heal_rest()
            except BaseException as error:
                self._failure = self._failure or error
            self._lab.event("timeline", phase="end", injected=len(self.done), failed=str(self._failure or ""))
            self._idle.set()


@dataclass(order=True, slots=True)
class _Step:
    """Something to do at a time: inject ``planned``, or heal what is number ``heals`` of those done."""

    when: float
    order: int
    planned: Planned | None = None
    due: float = 0.0
    """When the plan wants it; earlier than ``when`` if it had to wait."""
    heals: int | None = None


class _Run:
    """One run of a timeline, inside its thread."""

    def __init__(self, timeline: Timeline, start: float) -> None:
        self._timeline = timeline
        self._lab, self._faults = timeline._lab, timeline._faults
        self._start = start
        self._entries: dict[int, Entry] = {}
        self._steps: list[_Step] = []
        self._waiting = [planned for planned in timeline.planned if planned.when]
        self._events = Tail(self._lab.folder)
        self._order = 0
        for planned in timeline.planned:
            if not planned.when:
                self._push(planned.at_us / 1e6, planned=planned)

    def everything(self) -> None:
        """Until nothing is left to be done, or the timeline is stopped."""
        while self._steps or self._waiting:
            now = self._now()
            if self._steps and self._steps[0].when <= now:
                self._do(heapq.heappop(self._steps))
                continue
            pause = self._steps[0].when - now if self._steps else _LOOK
            if self._waiting:
                pause = min(pause, _LOOK)
                self._look()
            if self._timeline._stopping.wait(pause):
                return

    def heal_rest(self) -> None:
        """Heal what still holds, the last first. The first error is raised once all have been tried."""
        failure: Exception | None = None
        for number in sorted(self._entries, reverse=True):
            try:
                self._heal(number)
            except Exception as error:  # the others must be healed as well
                failure = failure or error
        if failure:
            raise failure

    def _do(self, step: _Step) -> None:
        if step.heals is not None:
            self._heal(step.heals)
        elif step.planned is not None:
            self._inject(step.planned, step.due)

    def _inject(self, planned: Planned, due: float) -> None:
        fault = make_fault(planned.fault, planned.settings)
        done = self._timeline.done
        try:
            entry = self._faults.inject(fault)
        except TestbedError as error:
            if isinstance(error, FaultBusy) and (later := self._after_late_one(error.holder, due)) is not None:
                self._push(later, planned=planned, due=due)
                return
            others = self._timeline.tolerant and self._is_disturbed()
            if not planned.drawn or not (isinstance(error, FaultBusy) or others):
                raise
            self._lab.event("timeline", fault.subject(), phase="left-out", fault=planned.fault, message=str(error))
            done.append(Done(planned, due, None))
            return
        now = self._now()
        number = len(done)
        done.append(Done(planned, due, now, now if fault.momentary else None))
        self._lab.event("timeline", fault.subject(), phase="injected", fault=entry.id, due=due, taken=now)
        if fault.momentary:
            return
        self._entries[number] = entry
        if planned.hold_us is not None:
            self._push(now + planned.hold_us / 1e6, heals=number)

    def _after_late_one(self, holder: str, due: float) -> float | None:
        """When a fault of ours will be healed that by the plan would have been already: on a busy machine things come
        late, and one after the other all the same. None if the plan itself lets the two meet."""
        for number, entry in self._entries.items():
            earlier = self._timeline.done[number]
            hold = earlier.planned.hold_us
            if entry.id == holder and hold is not None and earlier.due + hold / 1e6 <= due:
                return next(step.when for step in self._steps if step.heals == number)
        return None

    def _heal(self, number: int) -> None:
        entry = self._entries.pop(number)
        self._faults.heal(entry)
        done = self._timeline.done
        before = done[number]
        done[number] = Done(before.planned, before.due, before.injected, self._now())

    def _is_disturbed(self) -> bool:
        """Whether a fault holds, or has done so until a moment ago."""
        ends = [one.healed for one in self._timeline.done if one.injected is not None]
        return bool(self._entries) or any(end is not None and self._now() - end < _AFTERMATH for end in ends)

    def _look(self) -> None:
        """Whether an event that something waits for has come."""
        for event in self._events.new():
            for planned in [one for one in self._waiting if one.when and _matches(one.when, event)]:
                self._waiting.remove(planned)
                self._push(event["t"] - self._start + planned.at_us / 1e6, planned=planned)

    def _push(
        self, when: float, *, planned: Planned | None = None, due: float | None = None, heals: int | None = None
    ) -> None:
        self._order += 1
        step = _Step(when, self._order, planned, when if due is None else due, heals)
        heapq.heappush(self._steps, step)

    def _now(self) -> float:
        return time.monotonic() - self._start


def _matches(condition: Condition, event: dict[str, object]) -> bool:
    return event["kind"] == condition.event and condition.node in (None, event["node"])
