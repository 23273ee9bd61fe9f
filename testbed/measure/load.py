"""The load generator: clients that fetch the same file again and again, each through its own SOCKS proxy."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.content import content_digest
from testbed.measure.fetch import Download, Target, fetch
from testbed.progress import Progress, Silent

if TYPE_CHECKING:
    from testbed.measure.store import Run

TIMEOUT = 60.0
"""Seconds for one download. An introduction point that has not noticed its service's death costs a tor client about
31 s; with a shorter time-out the client starts over and needs longer still."""
GRACE = 30.0
"""Seconds after the end of a load in which downloads under way may still finish."""
_PAUSE = 1.0
"""Least seconds from the start of a failed download to the next: tor refuses some at once."""


@dataclass
class LoadSummary:
    """Counts of a load. ``outcomes`` by outcome, ``by_instance`` of the ``ok`` ones."""

    outcomes: Counter[str] = field(default_factory=Counter)
    by_instance: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def ok(self) -> int:
        """Downloads that came through whole."""
        return self.outcomes["ok"]

    @property
    def failed(self) -> int:
        """Downloads that did not, without those that were cut at the end."""
        return self.outcomes.total() - self.ok - self.outcomes["unfinished"]


def recorder(run: Run, step: str = "") -> Callable[[Download], None]:
    """An ``on_result`` that puts each download into ``run`` at once, its times in seconds since the run's start."""

    def record(download: Download) -> None:
        run.event(
            "download",
            download.client,
            t=download.ended,
            step=step,
            number=download.number,
            started=run.told(download.started),
            first_byte=run.told(download.first_byte),
            last_byte=run.told(download.last_byte),
            ended=run.told(download.ended),
            bytes=download.bytes,
            outcome=download.outcome,
            instance=download.instance,
        )

    return record


class ClientLoad:
    """A load that runs in a thread of its own, so that faults can be injected meanwhile.

    Each client fetches again and again, with a new SOCKS username and so a new circuit each time, until ``duration``
    seconds are over or it has made ``count`` downloads. After each it waits about ``pause`` seconds (by chance half to
    one and a half times that), at first up to that long, so that clients do not march in step. A download under way at
    the end may finish within ``grace`` seconds and is then cut and reported as ``unfinished``. ``on_result`` is called
    in the load's thread for each download; if it raises, the load ends and ``join`` raises that.
    """

    def __init__(
        self,
        clients: Mapping[str, Path],
        target: Target,
        *,
        duration: float | None = None,
        count: int | None = None,
        pause: float = 0.0,
        timeout: float = TIMEOUT,
        grace: float = GRACE,
        on_result: Callable[[Download], None] = lambda download: None,
        progress: Progress = Silent(),  # noqa: B008 - has no state
    ) -> None:
        if duration is None and count is None:
            raise ValueError("a load needs an end: duration, count or both")
        if not clients:
            raise TestbedError("a load needs clients", remedy="give the topology's `tor` section `clients`")
        self._clients = dict(clients)
        self._target = target
        self._duration = duration
        self._count = count
        self._between = pause
        self._timeout = timeout
        self._grace = grace
        self._on_result = on_result
        self._progress = progress
        self._summary = LoadSummary()
        self._failure: BaseException | None = None
        self._token = secrets.token_hex(4)  # no username of this load was ever used before
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        """No new downloads."""
        self._cut = asyncio.Event()
        """No downloads at all."""
        self._ready = threading.Event()
        # Not the thread's own end: in CPython 3.11 a join that Ctrl-C interrupts takes the thread for dead.
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="client-load", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()
        self._ready.wait()

    def stop(self, grace: float | None = None) -> None:
        """End now rather than at the duration's end, with this ``grace`` if given; ``join`` afterwards."""
        if self._loop is not None and not self._done.is_set():
            with contextlib.suppress(RuntimeError):  # it ended meanwhile
                self._loop.call_soon_threadsafe(self._end, self._grace if grace is None else grace)

    def join(self, timeout: float | None = None) -> LoadSummary:
        """Wait until every download is over and reported. Raises what ``on_result`` raised, or ``WaitTimeout``."""
        if not self._done.wait(timeout):
            raise WaitTimeout("the end of the load", timeout or 0.0, f"{self._summary.outcomes.total()} downloads")
        if self._failure is not None:
            raise self._failure
        return self._summary

    @property
    def summary(self) -> LoadSummary:
        """The counts so far."""
        return self._summary

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            self._done.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()
        started = time.monotonic()
        tasks = [asyncio.create_task(self._client(name, proxy), name=name) for name, proxy in self._clients.items()]
        reporter = asyncio.create_task(self._report(started))
        try:
            await self._until_over(tasks)
        finally:
            reporter.cancel()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._summary.seconds = time.monotonic() - started
            self._show(self._total)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    def _end(self, grace: float) -> None:
        self._over.set()
        asyncio.get_running_loop().call_later(grace, self._cut.set)

    async def _until_over(self, tasks: list[asyncio.Task[None]]) -> None:
        """Until all clients have made their count, one has failed, or time is over and the grace too."""
        over: asyncio.Future[Any] = asyncio.create_task(self._over.wait())
        cut: asyncio.Future[Any] = asyncio.create_task(self._cut.wait())
        working: asyncio.Future[Any] = asyncio.gather(*tasks)
        try:
            await asyncio.wait({over, working}, timeout=self._duration, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                if not self._over.is_set():
                    self._end(self._grace)
                await asyncio.wait({cut, working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            cut.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _client(self, name: str, proxy: Path) -> None:
        number = 0
        chance = random.Random(name)
        await self._pause(self._between * chance.random())
        while not self._over.is_set() and (self._count is None or number < self._count):
            number += 1
            username = f"{self._token}-{name}-{number}"
            download = await fetch(name, number, proxy, self._target, username, self._timeout)
            self._summary.outcomes[download.outcome] += 1
            if download.outcome == "ok":
                self._summary.by_instance[download.instance] += 1
            self._on_result(download)
            if download.outcome == "unfinished":
                return
            if number != self._count:
                at_least = 0.0 if download.outcome == "ok" else download.started + _PAUSE - time.monotonic()
                await self._pause(max(at_least, self._between * chance.uniform(0.5, 1.5)))

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            try:
                await asyncio.wait_for(self._over.wait(), seconds)
            except TimeoutError:
                return

    async def _report(self, started: float) -> None:
        while True:
            if self._duration is not None:
                self._show(min(int(time.monotonic() - started), self._total - 1))
            else:
                self._show(min(self._summary.outcomes.total(), self._total - 1))
            await asyncio.sleep(0.5)

    @property
    def _total(self) -> int:
        return (self._count or 0) * len(self._clients) if self._duration is None else max(1, math.ceil(self._duration))

    def _show(self, done: int) -> None:
        cut = self._summary.outcomes["unfinished"]
        note = f"{self._summary.ok} downloads, {self._summary.failed} failed" + (f", {cut} cut" if cut else "")
        self._progress.update("load", done, self._total, note)


def run_load(
    clients: Mapping[str, Path],
    address: str,
    port: int,
    path: str,
    *,
    size: int,
    seed: int = 0,
    duration: float | None = None,
    count: int | None = None,
    timeout: float = TIMEOUT,
    grace: float = GRACE,
    on_result: Callable[[Download], None] = lambda download: None,
    progress: Progress = Silent(),  # noqa: B008 - has no state
) -> LoadSummary:
    """Run a ``ClientLoad`` from beginning to end. The file must be ``content(size, seed)``.

    Raises what ``on_result`` raises. On Ctrl-C what is under way is reported as ``unfinished`` before it raises.
    """
    target = Target(address, port, path, size, content_digest(size, seed))
    load = ClientLoad(
        clients,
        target,
        duration=duration,
        count=count,
        timeout=timeout,
        grace=grace,
        on_result=on_result,
        progress=progress,
    )
    load.start()
    try:
        return load.join()
    except BaseException:
        load.stop(grace=0)
        load._done.wait(10)
        raise
