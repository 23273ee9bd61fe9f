"""From a schedule that breaks something to a small one that does: fewer faults first, then shorter times. Pure.

Delta debugging: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28(2), 2002,
algorithm ddmin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from testbed.faults.chaos.draw import SHORTEST_US
from testbed.faults.timeline import Planned

T = TypeVar("T")
Fails = Callable[[Sequence[Planned]], bool]
_STEP_US = 100_000
"""Times are shortened to multiples of this."""


class Exhausted(Exception):
    """No more trials are allowed."""


class Trials:
    """Whether a schedule fails, found out once each, in at most ``most`` trials and about ``seconds``."""

    def __init__(self, fails: Fails, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fails = fails
        self._most = most
        self._clock = clock
        self._end = clock() + seconds
        self._known: dict[str, bool] = {}
        self.number = 0
        """How many have been made."""

    def __call__(self, planned: Sequence[Planned]) -> bool:
        """Try it. Raises ``Exhausted`` rather than begin a trial too many."""
        key = repr(list(planned))
        if key not in self._known:
            if self.number >= self._most or self._clock() >= self._end:
                raise Exhausted
            self.number += 1
            self._known[key] = self._fails(planned)
        return self._known[key]


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of ``items``, in their order, that fails, while it no longer does without any single one of them.

    ``items`` fail. The best so far is returned once ``fails`` raises ``Exhausted``.
    """
    current = list(items)
    try:
        if current and fails([]):
            return []
        parts = 2
        while len(current) > 1:
            bounds = [len(current) * number // parts for number in range(parts + 1)]
            pieces = [current[start:end] for start, end in pairwise(bounds)]
            rests = [current[:start] + current[end:] for start, end in pairwise(bounds)]
            if (found := next((piece for piece in pieces if fails(piece)), None)) is not None:
                current, parts = found, 2
            elif parts > 2 and (found := next((rest for rest in rests if fails(rest)), None)) is not None:
                current, parts = found, parts - 1
            elif parts < len(current):
                parts = min(2 * parts, len(current))
            else:
                break
            parts = max(2, min(parts, len(current)))
    except Exhausted:
        pass
    return current


def shrink(planned: Sequence[Planned], fails: Fails) -> list[Planned]:
    """The faults that matter, then shorter holds and shorter times between them; it begins at once.

    ``planned`` fails. Every step of the way fails, so what is returned does, however early ``fails`` is exhausted.
    """
    few = ddmin(planned, lambda part: fails(closed_up(part)))
    if not few:
        return []
    current = closed_up(few)
    try:
        if not fails(current):
            return few
        for index in range(len(current)):
            current = _shorter(current, index, _hold, _with_hold, SHORTEST_US, fails)
            if index:
                current = _shorter(current, index, _gap, _with_gap, 0, fails)
    except _Stopped as stopped:
        return stopped.current
    except Exhausted:
        # Not even the first was tried: the faults alone, at their own times, are known to fail.
        return current if len(few) < len(planned) else few
    return current


def closed_up(planned: Sequence[Planned]) -> list[Planned]:
    """The same, beginning at once. What waits for an event is left as it is."""
    times = [one.at_us for one in planned if one.when is None]
    first = min(times, default=0)
    return [one if one.when else replace(one, at_us=one.at_us - first) for one in planned]


class _Stopped(Exception):
    """Exhausted, with the best so far."""

    def __init__(self, current: list[Planned]) -> None:
        super().__init__()
        self.current = current


def _shorter(
    current: list[Planned],
    index: int,
    read: Callable[[list[Planned], int], int],
    write: Callable[[list[Planned], int, int], list[Planned]],
    least: int,
    fails: Fails,
) -> list[Planned]:
    """The least value in steps that fails, by bisection; the shortest is tried first, since it often does."""
    low, high = least, read(current, index)
    if high <= low or (current[index].when is not None and read is _gap):
        return current
    middle = low
    try:
        while low < high:
            trial = write(current, index, middle)
            if fails(trial):
                current, high = trial, middle
            else:
                low = middle + _STEP_US
            middle = low + (high - low) // 2 // _STEP_US * _STEP_US
    except Exhausted:
        raise _Stopped(current) from None
    return current


def _hold(current: list[Planned], index: int) -> int:
    return current[index].hold_us or 0


def _with_hold(current: list[Planned], index: int, value: int) -> list[Planned]:
    return [*current[:index], replace(current[index], hold_us=value), *current[index + 1 :]]


def _gap(current: list[Planned], index: int) -> int:
    return current[index].at_us - current[index - 1].at_us


def _with_gap(current: list[Planned], index: int, value: int) -> list[Planned]:
    """That one and all later ones come sooner."""
    sooner = _gap(current, index) - value
    later = [one if one.when else replace(one, at_us=one.at_us - sooner) for one in current[index:]]
    return current[:index] + later
