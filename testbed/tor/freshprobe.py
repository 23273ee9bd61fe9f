"""Fresh clients one after the other while something happens, and how they go into a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from testbed.tor.fresh import FreshClients, FreshFetch

if TYPE_CHECKING:
    from testbed.measure.store import Run


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
        def relative(t: float | None) -> float | None:
            return None if t is None else round(run.since_start(t), 6)

        run.event(
            "fresh",
            fetched.node,
            t=fetched.ended,
            step=step,
            number=fetched.number,
            started=relative(fetched.started),
            ready=relative(fetched.ready),
            first_byte=relative(fetched.first_byte),
            last_byte=relative(fetched.last_byte),
            ended=relative(fetched.ended),
            bytes=fetched.bytes,
            outcome=fetched.outcome,
            instance=fetched.instance,
            message=fetched.message,
        )

    return record
