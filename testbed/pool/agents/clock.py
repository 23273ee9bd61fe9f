"""Pool time: whole microseconds since the pool started, in virtual or in real time, with one interface.

All actions of a clock run one after the other, so what is driven by it needs no locks.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

from testbed.errors import WaitTimeout

SECOND = 10**6
"""In pool time."""

Action = Callable[[], None]


class Timer:
    """An action that has been asked for."""

    __slots__ = ("action", "at")

    def __init__(self, at: int, action: Action) -> None:
        self.at = at
        self.action: Action | None = action

    def cancel(self) -> None:
        """The action will not run, unless it has already begun."""
        self.action = None


class Clock(Protocol):
    """What tells the time and runs actions at their time."""

    def now(self) -> int:
        """Pool time in microseconds."""

    def at(self, when: int, action: Action) -> Timer:
        """Run ``action`` at ``when``, or as soon as possible if that has passed. May be called from any thread."""


class _Agenda:
    """Timers by time; at equal times in the order in which they were asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()

    def add(self, timer: Timer) -> None:
        heapq.heappush(self._heap, (timer.at, next(self._numbers), timer))

    def next(self) -> int | None:
        """When the first action is due, None if there is none."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Timer:
        return heapq.heappop(self._heap)[2]


class VirtualClock:
    """Time that jumps from one action to the next. The same actions give the same course, every time."""

    def __init__(self) -> None:
        self._now = 0
        self._agenda = _Agenda()
        self.watchers: list[Action] = []
        """Called after every action: what must always hold is checked here."""

    def now(self) -> int:
        """Pool time in microseconds."""
        return self._now

    def at(self, when: int, action: Action) -> Timer:
        """See ``Clock``. For one thread only."""
        timer = Timer(max(when, self._now), action)
        self._agenda.add(timer)
        return timer

    def run(self, until: int) -> None:
        """Run what is due up to ``until``, included; then it is ``until``."""
        while (due := self._agenda.next()) is not None and due <= until:
            self._now = due
            action = self._agenda.pop().action
            if action:
                action()
            for watcher in self.watchers:
                watcher()
        self._now = max(self._now, until)


class RealClock:
    """Time that passes, ``speed`` times as fast as the kernel's monotonic clock. One thread runs all actions."""

    def __init__(self, speed: float = 1, start: int | None = None) -> None:
        """``start`` is what ``time.monotonic_ns`` gave when the pool's time began; now, unless given.

        The monotonic clock is the same for all processes of a machine, so that all can share one pool time.
        """
        if speed <= 0:
            raise ValueError(f"a clock of speed {speed:g} stands still; give a number above 0")
        self.speed = speed
        self._start = time.monotonic_ns() if start is None else start
        self._agenda = _Agenda()
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="pool clock", daemon=True)
        self._thread.start()

    def now(self) -> int:
        """Pool time in microseconds."""
        return int((time.monotonic_ns() - self._start) * self.speed / 1000)

    def at(self, when: int, action: Action) -> Timer:
        """See ``Clock``."""
        timer = Timer(when, action)
        with self._changed:
            self._agenda.add(timer)
            self._changed.notify()
        return timer

    def wait(self) -> None:
        """Until the clock is closed. Raises what an action raised, after which no other is run."""
        self._thread.join()
        if self._error:
            raise self._error

    def close(self, timeout: float = 10) -> None:
        """End the thread after the action that it is running. Raises what an action raised, or ``WaitTimeout``."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise WaitTimeout("the pool's clock to end", timeout, "an action that is still running")
        if self._error:
            raise self._error

    def _work(self) -> None:
        while action := self._next_action():
            try:
                action()
            except BaseException as error:  # the thread has nobody to tell: ``close`` raises it
                self._error = error
                return

    def _next_action(self) -> Action | None:
        """The next action when its time has come; None when the clock is closed."""
        with self._changed:
            while not self._closed:
                due = self._agenda.next()
                if due is not None and due <= self.now():
                    action = self._agenda.pop().action
                    if action:
                        return action
                    continue
                self._changed.wait(None if due is None else (due - self.now()) / self.speed / SECOND)
        return None
