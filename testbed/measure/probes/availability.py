"""Is it there? Asked at a fixed period, while something else happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.outages import Attempt, Outage, outages
from testbed.measure.probes.asking import MAKERS, Ask, Kind, kind_of
from testbed.measure.probes.base import Call, Recorder, in_node, outcome_of
from testbed.net.namespace import enter

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


@dataclass(frozen=True, slots=True)
class Timeline:
    """All questions and what they say. Times are ``time.monotonic()`` values."""

    source: str
    target: str
    kind: Kind
    period: float
    attempts: tuple[Attempt, ...]
    outcomes: Counter[str]
    missed: int
    """Questions that were not asked, since the machine was too busy at their time."""

    @property
    def outages(self) -> list[Outage]:
        """When it was not there."""
        return outages(self.attempts)

    @property
    def lost(self) -> int:
        """Questions without a good answer."""
        return sum(not attempt.ok for attempt in self.attempts)

    @property
    def available(self) -> float:
        """Share of questions with a good answer, 0 to 1; NaN of none."""
        return 1 - self.lost / len(self.attempts) if self.attempts else float("nan")


class Availability:
    """Asks from a thread of its own from ``start`` to ``stop``; also a context manager.

    What is under way when it stops is waited for. Each question is a sample ``answer_seconds`` of ``source>target``,
    without a value where no good answer came, and at the end each outage is an event ``outage``.
    """

    def __init__(
        self,
        lab: Lab,
        source: str,
        target: str,
        *,
        kind: Kind | None = None,
        period: float = 0.1,
        timeout: float = 1.0,
        recorder: Recorder | None = None,
    ) -> None:
        """``target`` is a node (asked by ping), a node with a port (a TCP connection) or a URL (a status below 400),
        unless ``kind`` says otherwise. A question is failed ``timeout`` seconds after it was asked."""
        if period < 0.001 or timeout <= 0:
            raise TestbedError(
                f"availability every {period:g} s with a time-out of {timeout:g} s",
                remedy="a period of at least 1 ms and a time-out above 0",
            )
        self.kind: Kind = kind or kind_of(target)
        self._source, self._target = source, target
        self._period, self._timeout = period, timeout
        self._recorder = recorder
        self._ask_of = MAKERS[self.kind](lab, source, target)
        in_node(lab, source, lambda: None)  # the errors of a node that is not there, here rather than in the thread
        self._namespace: Path = lab.namespace(source)
        self._attempts: list[Attempt] = []
        self._outcomes: Counter[str] = Counter()
        self._missed = 0
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._ready = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="availability", daemon=True)
        self._timeline: Timeline | None = None

    def start(self) -> Self:
        """Begin; returns when the first question has been asked."""
        self._thread.start()
        self._ready.wait()
        return self

    def stop(self) -> Timeline:
        """End, record the outages, and return all of it. A second call returns the same."""
        if self._loop is not None and not self._done.is_set():
            with contextlib.suppress(RuntimeError):  # it ended meanwhile
                self._loop.call_soon_threadsafe(self._over.set)
        if self._thread.ident is not None and not self._done.wait(self._timeout + 10):
            raise WaitTimeout("the last answer", self._timeout + 10, "questions are still under way")
        if self._failure is not None:
            raise self._failure
        if self._timeline is None:
            self._timeline = self._finished()
        return self._timeline

    @property
    def timeline(self) -> Timeline:
        """The questions whose outcome is known by now."""
        attempts = tuple(sorted(self._attempts.copy(), key=lambda attempt: attempt.started))
        outcomes = Counter(self._outcomes)
        return Timeline(self._source, self._target, self.kind, self._period, attempts, outcomes, self._missed)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self) -> None:
        self._call = Call(self._recorder, "availability", self._source, self._target)
        try:
            enter(self._namespace)
            asyncio.run(self._ask_on())
        except BaseException as error:
            self._failure = error
            self._call.result(failed=f"{type(error).__name__}: {error}")
        finally:
            try:
                self._record_call()
            except Exception as error:
                self._failure = self._failure or error
            self._ready.set()
            self._done.set()

    async def _ask_on(self) -> None:
        self._loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        async with self._ask_of() as ask:
            start, number = time.monotonic(), 0
            while not self._over.is_set():
                task = asyncio.create_task(self._once(ask, number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(0)  # let it be sent
                self._ready.set()
                following = max(number, int((time.monotonic() - start) / self._period)) + 1
                self._missed += following - number - 1
                number = following
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._over.wait(), max(0.0, start + number * self._period - time.monotonic())
                    )
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result

    async def _once(self, ask: Ask, number: int) -> None:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                outcome = await ask(number)
        except TimeoutError:
            outcome = "timeout"
        except OSError as error:
            outcome = outcome_of(error)
        ended = time.monotonic()
        self._attempts.append(Attempt(started, ended, outcome == "ok"))
        self._outcomes[outcome] += 1
        self._call.sample("answer_seconds", ended - started if outcome == "ok" else None, started)

    def _record_call(self) -> None:
        found = self.timeline
        self._call.result(
            by=self.kind,
            period=self._period,
            timeout=self._timeout,
            asked=len(found.attempts),
            lost=found.lost,
            missed=found.missed,
            outcomes=dict(found.outcomes),
        )
        self._call.record()

    def _finished(self) -> Timeline:
        found = self.timeline
        if self._recorder is not None:
            for outage in found.outages:
                self._recorder.event("outage", self._source, target=self._target, **_told(outage, self._recorder))
        return found


def _told(outage: Outage, recorder: Recorder) -> dict[str, Any]:
    """An outage as an event has it: seconds since the run's start, and None for what is not known."""

    def since(t: float | None) -> float | None:
        return None if t is None else round(recorder.since_start(t), 6)

    start, end = outage.start, outage.end
    return {
        "start": since(start.middle if start else outage.first_lost),
        "end": since(end.middle if end else None),
        "start_range": [since(start.earliest), since(start.latest)] if start else None,
        "end_range": [since(end.earliest), since(end.latest)] if end else None,
        "seconds": round(outage.seconds, 6),
        "shortest": round(outage.shortest, 6),
        "longest": None if outage.longest is None else round(outage.longest, 6),
        "lost": outage.lost,
    }
