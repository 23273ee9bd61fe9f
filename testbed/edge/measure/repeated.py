"""Users who do the same again and again, each in a thread of its own, while a scenario goes on."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Repeated(ABC):
    """A context; what a user's thread raises is raised at its end, unless something else is."""

    def __init__(self, users: Sequence[str], period: float) -> None:
        """A user begins ``period`` seconds after it began before, or as soon as that is over."""
        self._period = period
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, args=(user,), name=user) for user in users]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None and value is None:
            raise self._failure

    @abstractmethod
    def _fetch(self, user: str, begun: float) -> None:
        """What a user does; ``begun`` is the monotonic time."""

    def _run(self, user: str) -> None:
        try:
            while not self._over.is_set():
                begun = time.monotonic()
                self._fetch(user, begun)
                self._over.wait(max(0.0, begun + self._period - time.monotonic()))
        except BaseException as error:
            self._failure = error
