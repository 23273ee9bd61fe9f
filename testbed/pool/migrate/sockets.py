"""The work on the sockets of a batch, step by step: what the steps are, and the reference, one system call after
another. ``native`` does the same in C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from testbed.errors import TestbedError
from testbed.pool.migrate import tcp
from testbed.pool.migrate.state import TcpState

Failed = dict[int, str]
"""Places with which a step failed, and why."""


class Sockets(Protocol):
    """Old and new sockets of a batch. Each step is taken with those at some ``places``; what fails is said."""

    def check(self, places: Sequence[int]) -> Failed:
        """Can it be moved? ``tcp.check``."""

    def dump(self, places: Sequence[int]) -> Failed:
        """Freeze and read it: ``tcp.freeze``, ``tcp.dump``."""

    def refresh(self, places: Sequence[int]) -> Failed:
        """Read it again if it is not ``tcp.unchanged``."""

    def restore(self, places: Sequence[int]) -> Failed:
        """Make its new socket in the calling thread's namespace: ``tcp.restore``."""

    def thaw(self, places: Sequence[int]) -> Failed:
        """Let the new socket run: ``tcp.thaw``."""

    def retire(self, places: Sequence[int]) -> None:
        """End the old socket without a word, if it has not ended: ``tcp.retire``; it is not closed."""

    def made(self, place: int) -> int:
        """The descriptor of the new socket, which belongs to this object."""

    def unmake(self, place: int) -> None:
        """End the new socket, if there is one, which is frozen still; without a word."""

    def quiet(self, place: int) -> bool:
        """``TcpState.quiet``."""

    def size(self, place: int) -> int:
        """Bytes in both queues."""

    def state(self, place: int) -> TcpState:
        """All that was read from it."""

    def close(self) -> None:
        """Let go of the new sockets and of what was read; the old ones belong to the caller."""


Core = Callable[[Sequence[socket.socket]], Sockets]
"""Makes one of these of the old sockets."""


class PlainSockets:
    """The reference."""

    def __init__(self, old: Sequence[socket.socket]) -> None:
        self._old = list(old)
        self._made: dict[int, socket.socket] = {}
        self._states: dict[int, TcpState] = {}

    def check(self, places: Sequence[int]) -> Failed:
        return _each(places, lambda place: tcp.check(self._old[place]))

    def dump(self, places: Sequence[int]) -> Failed:
        def work(place: int) -> None:
            tcp.freeze(self._old[place])
            self._states[place] = tcp.dump(self._old[place])

        return _each(places, work)

    def refresh(self, places: Sequence[int]) -> Failed:
        def work(place: int) -> None:
            if not tcp.unchanged(self._old[place], self._states[place]):
                self._states[place] = tcp.dump(self._old[place])

        return _each(places, work)

    def restore(self, places: Sequence[int]) -> Failed:
        def work(place: int) -> None:
            self._made[place] = tcp.restore(self._states[place])

        return _each(places, work)

    def thaw(self, places: Sequence[int]) -> Failed:
        return _each(places, lambda place: tcp.thaw(self._made[place], self._states[place]))

    def retire(self, places: Sequence[int]) -> None:
        for place in places:
            with suppress(OSError):
                tcp.retire(self._old[place])

    def made(self, place: int) -> int:
        return self._made[place].fileno()

    def unmake(self, place: int) -> None:
        if place in self._made:
            tcp.retire(self._made.pop(place))

    def quiet(self, place: int) -> bool:
        return self._states[place].quiet

    def size(self, place: int) -> int:
        return self._states[place].size

    def state(self, place: int) -> TcpState:
        return self._states[place]

    def close(self) -> None:
        for made in self._made.values():
            made.close()
        self._made.clear()


def _each(places: Iterable[int], work: Callable[[int], None]) -> Failed:
    failed: Failed = {}
    for place in places:
        try:
            work(place)
        except (OSError, TestbedError) as error:
            failed[place] = reason(error)
    return failed


def reason(error: BaseException) -> str:
    """What went wrong, without where and what to do."""
    return error.what if isinstance(error, TestbedError) else str(error)
