"""What goes on in an experiment: clients that fetch, which HSDir holds what, who was served, and a little traffic."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.measure.fetch import Download, fetch
from testbed.measure.load import ClientLoad, recorder, run_load
from testbed.tor.measure.experiment import Subject, Trial, onion_target, sockets
from testbed.tor.measure.freshprobe import RecordedFreshClients

if TYPE_CHECKING:
    from testbed.tor.onion.services import OnionServices

HSDIR_PERIOD = 10.0
"""Seconds between two readings of the HSDirs; a reading is a handful of small fetches."""
LIGHT_PAUSE = 5.0
"""Seconds between two requests of a client for light traffic. A request of an onion service costs 60 ms of CPU time in
all (some forty handshakes at the client, the service and the relays between), so thirty clients cost a third of a core.
"""
REQUEST_TIMEOUT = 120.0
"""Seconds for one download: more than the three stalls of 31 s that three introduction points can cost."""
_LONGEST = 3600.0


def record_hsdirs(subject: Subject, step: str) -> None:
    """Read what each responsible HSDir holds now, an event ``hsdir`` each.

    A reading that fails is an event ``hsdir-unread``, not the end of the run.
    """
    measure = subject.measure
    try:
        entries = subject.onions.hsdir_map(subject.service)
    except TestbedError as error:
        measure.event("hsdir-unread", step=step, service=subject.service, message=str(error))
        return
    for entry in entries:
        measure.event(
            "hsdir",
            entry.nickname,
            step=step,
            service=subject.service,
            fingerprint=entry.fingerprint,
            instance=entry.instance,
            revision=entry.revision,
        )


@contextmanager
def hsdirs_recorded(subject: Subject, step: str, *, period: float = HSDIR_PERIOD) -> Iterator[None]:
    """``record_hsdirs`` at the beginning and end, and every ``period`` seconds between."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(period):
            record_hsdirs(subject, step)

    record_hsdirs(subject, step)
    watcher = threading.Thread(target=watch, name="hsdir-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        record_hsdirs(subject, step)


def load_step(trial: Trial) -> None:
    """A step in which all clients fetch again and again, as long as ``seconds`` says, with one descriptor each.

    Recorded. AssertionError if no download comes through.
    """
    onions, measure, step = trial.onions, trial.measure, trial.named(trial.publish)
    target = onion_target(onions, trial.service)
    onions.forget_descriptors()
    detail = {"instances": trial.number, "publish": trial.publish, "repeat": trial.repeat}
    with measure.step(step, **detail), hsdirs_recorded(trial, step):
        summary = run_load(
            sockets(onions.network),
            target.address,
            target.port,
            target.path,
            size=target.size,
            seed=onions.lab.plan.seed,
            duration=measure.seconds("seconds"),
            on_result=recorder(measure.run, step),
            progress=measure.progress,
        )
    assert summary.ok > 0, f"no download came through in step {step}: {dict(summary.outcomes)}"


class Served:
    """Who has been served, by whom and when: an ``on_result`` of a load that hands every download on."""

    def __init__(self, on_result: Callable[[Download], None]) -> None:
        self._on_result = on_result
        self._good: dict[str, list[Download]] = {}
        self._changed = threading.Condition()  # its lock may be taken again by whoever holds it

    def __call__(self, download: Download) -> None:
        """Take note of a download."""
        self._on_result(download)
        if download.outcome == "ok":
            with self._changed:
                self._good.setdefault(download.client, []).append(download)
                self._changed.notify_all()

    def by_instance(self) -> Counter[str]:
        """How many clients each instance was the last to serve."""
        with self._changed:
            return Counter(downloads[-1].instance for downloads in self._good.values())

    def first_after(self, since: float) -> dict[str, float]:
        """When each client's first success that began after ``since`` ended; without those that had none."""
        with self._changed:
            later = {name: [item.ended for item in got if item.started >= since] for name, got in self._good.items()}
        return {name: min(ends) for name, ends in later.items() if ends}

    def await_all(self, clients: set[str], since: float, timeout: float) -> set[str]:
        """Wait until each client has had a success that began after ``since``; those that had none in time."""
        with self._changed:
            self._changed.wait_for(lambda: clients <= self.first_after(since).keys(), timeout)
        return clients - self.first_after(since).keys()


@contextmanager
def asking(subject: Subject, step: str) -> Iterator[Served]:
    """All clients fetch from a service again and again, and fresh clients too, until the block ends. Recorded.

    Uses the parameters ``pause`` (of each client, between two requests) and ``every`` (between two fresh clients).
    """
    onions, measure, service = subject.onions, subject.measure, subject.service
    served = Served(recorder(measure.run, step))
    load = ClientLoad(
        sockets(onions.network),
        onion_target(onions, service),
        duration=_LONGEST,
        pause=measure.seconds("pause"),
        timeout=REQUEST_TIMEOUT,
        on_result=served,
        progress=measure.progress,
    )
    fresh = RecordedFreshClients(onions, measure).every(
        measure.seconds("every"), step=step, service=service, timeout=REQUEST_TIMEOUT
    )
    load.start()
    try:
        with fresh:
            yield served
    finally:
        load.stop(grace=2)
        load.join()


@contextmanager
def light_traffic(
    onions: OnionServices, service: str, *, pause: float = LIGHT_PAUSE, timeout: float = 20
) -> Iterator[None]:
    """Every client fetches from ``service`` too, a new circuit each time, with a pause between. Not recorded.

    A network in which nothing else moves is not a real one: cells that announce the end of a circuit go out with the
    next ones on their connection. Without a service there is no such traffic.
    """
    if not service:
        yield
        return
    proxies, target = sockets(onions.network), onion_target(onions, service)
    ready = threading.Event()
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def one(name: str, proxy: Path) -> None:
        chance = random.Random(name)
        await asyncio.sleep(pause * chance.random())
        while True:
            username = f"light-{name}-{time.monotonic_ns()}"
            if (await fetch(name, 0, proxy, target, username, timeout)).outcome == "unfinished":
                return
            await asyncio.sleep(pause * chance.uniform(0.5, 1.5))

    async def everyone() -> None:
        task = asyncio.current_task()
        assert task is not None
        started.append((asyncio.get_running_loop(), task))
        ready.set()
        await asyncio.gather(*(one(name, proxy) for name, proxy in proxies.items()))

    def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(everyone())

    thread = threading.Thread(target=work, name="light-traffic", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        loop, task = started[0]
        with contextlib.suppress(RuntimeError):  # it ended meanwhile
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
