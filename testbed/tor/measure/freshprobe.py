"""Fresh clients one after the other while something happens, and how they go into a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.tor.measure.experiment import onion_target
from testbed.tor.measure.fresh import PARALLEL, TIMEOUT, FreshClients, FreshFetch

if TYPE_CHECKING:
    from testbed.measure.measure import Measure
    from testbed.measure.store import Run
    from testbed.tor.onion.services import OnionServices


class FreshProbe:
    """A context in which a fresh client sets out every ``every`` seconds, each in a thread of its own.

    So the moment when a service can be reached again is known to within ``every`` seconds, and no cached descriptor has
    a part in it. While ``most`` are under way (in an outage each may wait for long), none sets out.
    """

    def __init__(
        self,
        clients: FreshClients,
        on_result: Callable[[FreshFetch], None],
        *,
        every: float = 2.0,
        most: int = 20,
    ) -> None:
        self._clients, self._on_result, self._every = clients, on_result, every
        self._free = threading.Semaphore(most)
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="fresh-probe")
        self._told = threading.Lock()
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="fresh-probe", daemon=True)

    def __enter__(self) -> FreshProbe:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End those under way (outcome ``unfinished``); raises what ``on_result`` raised, unless something else was."""
        self._over.set()
        self._thread.join()
        self._clients.stop()
        self._pool.shutdown()
        if self._failure is not None and kind is None:
            raise self._failure

    def _work(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due += self._every
            if self._free.acquire(blocking=False):
                self._pool.submit(self._one)

    def _one(self) -> None:
        try:
            fetched = self._clients.one()
            with self._told:
                self._on_result(fetched)
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._free.release()


def fresh_recorder(run: Run, step: str) -> Callable[[FreshFetch], None]:
    """An ``on_result`` that puts each fresh client into ``run``, its times in seconds since the run's start."""

    def record(fetched: FreshFetch) -> None:
        run.event(
            "fresh",
            fetched.node,
            t=fetched.ended,
            step=step,
            number=fetched.number,
            started=run.told(fetched.started),
            ready=run.told(fetched.ready),
            first_byte=run.told(fetched.first_byte),
            last_byte=run.told(fetched.last_byte),
            ended=run.told(fetched.ended),
            bytes=fetched.bytes,
            outcome=fetched.outcome,
            instance=fetched.instance,
            message=fetched.message,
        )

    return record


class RecordedFreshClients:
    """The fixture ``fresh_clients``: fresh clients of a lab's onion services, each in the run as soon as it ends.

    What they must get is the content that a service has by the lab's seed. ``service`` is the only one of the topology
    where it is not given.
    """

    def __init__(self, onions: OnionServices, measure: Measure) -> None:
        self._onions, self._measure = onions, measure

    def __call__(
        self,
        count: int,
        *,
        step: str = "",
        service: str = "",
        parallel: int = PARALLEL,
        timeout: float = TIMEOUT,
        nodes: Sequence[str] | None = None,
    ) -> list[FreshFetch]:
        """``count`` of them fetch the service's file, ``parallel`` at a time; see ``fresh.fresh_clients``.

        ``step`` is the name of the step to which they belong.
        """
        with self._clients(service, timeout, nodes) as clients:
            record = fresh_recorder(self._measure.run, step)
            return clients.many(count, parallel=parallel, on_result=record, progress=self._measure.progress)

    def every(
        self,
        seconds: float,
        *,
        step: str = "",
        service: str = "",
        timeout: float = TIMEOUT,
        nodes: Sequence[str] | None = None,
    ) -> FreshProbe:
        """A context in which one sets out every so many seconds; made before, it can be entered without delay."""
        clients = self._clients(service, timeout, nodes)
        return FreshProbe(clients, fresh_recorder(self._measure.run, step), every=seconds)

    def _clients(self, service: str, timeout: float, nodes: Sequence[str] | None) -> FreshClients:
        known = self._onions.services
        if not service and len(known) > 1:
            raise TestbedError("fresh clients of which service?", remedy=f"pass `service`, one of {', '.join(known)}")
        service = service or next(iter(known))
        if service not in known:
            raise TestbedError(f"there is no service {service!r}", remedy=f"the topology has {', '.join(known)}")
        return FreshClients(self._onions.network, onion_target(self._onions, service), nodes=nodes, timeout=timeout)
