"""Keeps a core running with all links of a lab in it, whatever happens to it."""

from __future__ import annotations

import mmap
import os
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from testbed.errors import TestbedError
from testbed.net.wire import native, protocol, state
from testbed.net.wire.charge import Charge
from testbed.net.wire.child import Child, CoreGone
from testbed.net.wire.links import Carried, overflows
from testbed.net.wire.protocol import DIRECTIONS, Counters, Kind, Message
from testbed.net.wire.state import WireLink

HEARTBEAT = 0.25
"""Seconds between two questions whether the core is there."""
STABLE = 10.0
"""A core that has run for so many seconds is sound. The next is started at once; one that keeps dying is not."""
FREE_RESTARTS = 3
LONGEST_PAUSE = 5.0
MEMORY_SHARE = 0.25
"""Of the machine's memory, for frames in flight of one lab."""


class Keeper:
    """The links of a lab, and the core that carries them. Used from one thread."""

    def __init__(self, it: Charge, selector: selectors.BaseSelector) -> None:
        self.folder = it.folder
        self.state = state.load(it.folder)
        self.numbers = self.state.numbers
        self.problems: dict[str, str] = {}
        """Links that are not carried, and why."""
        self.child: Child | None = None
        self.started = 0.0
        self.unsaved = False
        """Whether settings on disk are old. Writing a file can take longer than a change of a link may, so ``serve``
        does it once the client has its answer. Which links there are is on disk at once."""
        self._carried: Carried | None = None
        self._hang = it.hang
        self._command = list(it.command)
        self._selector = selector
        self._memory = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE)
        self._counters = it.counters
        self._table = memoryview(mmap.mmap(self._counters, protocol.TABLE))
        self._died = self._next_start = 0.0
        self._failures = 0

    @property
    def core(self) -> str:
        """Which core it is: ``c`` or ``python``."""
        return "python" if self._command == list(native.PYTHON) else "c"

    def save(self) -> None:
        """Write the state to disk."""
        self.state.save(self.folder)
        self.unsaved = False

    def event(self, kind: str, **detail: Any) -> None:
        """Append to the lab's events, in the form of ``Lab.event``."""
        state.append_event(self.folder, kind, **detail)

    def first_launch(self) -> None:
        """Start the core, or the one in Python where that fails. TestbedError if there is none then either, or if a
        link's TAPs cannot be opened."""
        try:
            self._launch()
        except (TestbedError, CoreGone, OSError) as error:
            if self.core == "python":
                raise TestbedError(f"the wire's core did not start: {error}") from error
            self.event("wire-core-unusable", command=self._command[0], reason=str(error))
            self._command = list(native.PYTHON)
            self.first_launch()
        for problem in self.problems.values():
            raise TestbedError(problem)

    def launch_again(self, died: float) -> None:
        """Start the core of a wire whose supervisor died at ``died`` and took its core along. What does not work now is
        tried again, and a link that cannot be carried is closed."""
        self._died = died
        self._restart(frames_lost=self._forget_in_flight())

    def _launch(self) -> None:
        self.state.generation += 1
        self.save()
        child = Child(self._command, self._counters, self._memory, self._hang)
        try:
            carried = Carried(child, self.state.generation)
            links = {self.numbers[name]: link for name, link in self.state.links.items()}
            failed = carried.add_all(links)
        except BaseException:
            child.end()
            raise
        self.problems = {links[number].name: str(error) for number, error in failed.items()}
        self.child, self._carried = child, carried
        self.started = time.monotonic()
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda _: self.heartbeat())
        count = len(links) - len(failed)
        self.event("wire-started", pid=child.pid, core=self.core, real_time=child.real_time, links=count)
        if not child.real_time:
            self.event("wire-not-in-real-time", remedy="give this process CAP_SYS_NICE, or keep the machine idle")
        for name, problem in self.problems.items():
            self.event("wire-link-closed", link=name, reason=problem)

    def heartbeat(self) -> None:
        """Ask the core whether it is there, which also brings its counters up to date; replace it if it is not."""
        if self.child is None:
            self._restart()
            return
        try:
            self.child.request(Message(Kind.PING))
        except CoreGone as gone:
            self._replace(gone)

    def _replace(self, gone: CoreGone) -> None:
        child, self.child, self._carried = self.child, None, None
        if child is None:
            return
        self._selector.unregister(child.pidfd)
        self._died = time.monotonic()
        age = self._died - self.started
        kind = "wire-hung" if gone.hung else "wire-died"
        self.event(kind, pid=child.pid, how=gone.how, age=age, frames_lost=self._forget_in_flight())
        self._failures = self._failures + 1 if age < STABLE else 1
        self._next_start = self._died + self._pause()
        self._restart()

    def _forget_in_flight(self) -> int:
        """Count the frames that a dead core had in flight as discarded; how many that are."""
        total = 0
        for number in self.numbers.values():
            for index in range(2):
                counters, lateness = protocol.read_counters(self._table, number, index)
                lost = max(0, counters.in_flight)
                counters.closed += lost
                total += lost
                protocol.write_counters(self._table, number, index, counters, lateness)
        return total

    def _pause(self) -> float:
        over = self._failures - FREE_RESTARTS
        return min(LONGEST_PAUSE, 0.1 * 2.0**over) if over > 0 else 0.0

    def _restart(self, **detail: Any) -> None:
        if time.monotonic() < self._next_start:
            return
        try:
            self._launch()
        except (TestbedError, CoreGone, OSError) as error:
            self._failures += 1
            pause = max(0.1, self._pause())
            self._next_start = time.monotonic() + pause
            self.event("wire-restart-failed", reason=str(error), retry_in=pause)
            if self._failures > FREE_RESTARTS:
                self._command = list(native.PYTHON)
            return
        seconds = time.monotonic() - self._died
        self.event("wire-restarted", pid=self.child.pid if self.child else 0, seconds=seconds, **detail)

    def update(self, new: WireLink, work: Callable[[Carried, int], None]) -> None:
        """Replace a link's state, ``work`` being what that takes in the core. If the core is gone, its successor
        starts with the new state; if the core or the kernel refuses, the old state stays."""
        old = self.state.links[new.name]
        self.state.links[new.name] = new
        number = self.numbers[new.name]
        try:
            if self._carried is not None and number in self._carried:
                work(self._carried, number)
        except CoreGone as gone:
            self._replace(gone)
        except BaseException:
            self.state.links[new.name] = old
            raise
        self.unsaved = True

    def add(self, link: WireLink) -> None:
        """Carry one more link. ApplyError if its TAPs cannot be opened."""
        if len(self.numbers) >= protocol.MOST_LINKS:
            raise TestbedError(f"the wire carries at most {protocol.MOST_LINKS} links")
        number = self.state.number(link.name)
        for index in range(2):
            protocol.write_counters(self._table, number, index, Counters(), [0] * protocol.LATENESS_BUCKETS)
        self.state.links[link.name] = link
        if self._carried is not None:
            try:
                failed = self._carried.add_all({number: link})
            except CoreGone as gone:
                self._replace(gone)
                failed = {}
            if failed:
                self._forget(link.name)
                raise failed[number]
        self.save()

    def remove(self, name: str) -> None:
        """Carry a link no more. Its TAPs stay, without carrier."""
        self.update(self.state.links[name], lambda carried, number: carried.remove(number))
        self._forget(name)

    def _forget(self, name: str) -> None:
        del self.state.links[name], self.numbers[name]
        self.problems.pop(name, None)
        self.save()

    def statistics(self, names: Iterable[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Counters, lateness and overflow of both directions of links, as plain data."""
        self.heartbeat()
        links = {name: self.state.links[name] for name in names}
        overflow = overflows(links.values())
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for name, link in links.items():
            found[name] = {}
            for index, direction in enumerate(DIRECTIONS):
                counters, lateness = protocol.read_counters(self._table, self.numbers[name], index)
                found[name][direction] = {
                    "counters": asdict(counters),
                    "lateness": lateness,
                    "overflowed": overflow.get(link.source(direction), 0),
                }
        return found
