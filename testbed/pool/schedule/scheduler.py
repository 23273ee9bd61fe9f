"""When the service must move: at each 1 of the combined sequence, and when the timer runs out.

Every migration restarts the timer, whatever caused it. A bit and the timer at the same time are one migration, and so
is everything that falls due before a migration that is already due has been done.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal, NamedTuple

from testbed.pool.schedule.sequences import FOREVER, Combined

WINDOW = 4096
"""Bits that are looked ahead at a time."""


class Due(NamedTuple):
    """The next migration. ``cause`` is ``look`` if that is not known yet: ask again at that time."""

    at: int
    cause: Literal["bit", "timer", "look"]


NEVER = Due(FOREVER, "timer")
"""Nothing will be due."""


class Schedule:
    """A sequence and a timer. Nothing in it changes by asking, so every server can ask the same and hear the same."""

    def __init__(self, sequence: Combined | None = None, timer: int | None = None) -> None:
        """Without a timer, or with an empty sequence, only the other counts. Times in microseconds."""
        if timer is not None and timer <= 0:
            raise ValueError("the timer is nothing; give a time, such as 250s, or leave it out")
        self.sequence = sequence or Combined({})
        self.timer = timer
        self._end = self.sequence.end
        self._live = self.sequence.known(0) < FOREVER
        self._after, self._until, self._ones = 0, 0, list[int]()  # the 1 bits in (after, until]

    def next(self, last: int, now: int = FOREVER) -> Due:
        """The first migration after the one at ``last``, as far as it can be known at ``now``.

        It may be in the past: then it is overdue. ``NEVER`` if nothing will ever be due.
        """
        timer = FOREVER if self.timer is None else last + self.timer
        if not self._live:
            one = self._first_one(last, timer)
            return Due(one, "bit") if one < FOREVER else Due(timer, "timer")
        known = self.sequence.known(now)
        ones = self.sequence.ones(last, max(last, min(known, timer)))
        if len(ones):
            return Due(int(ones[0]), "bit")
        return Due(known + 1, "look") if known < timer else Due(timer, "timer")

    def _first_one(self, after: int, limit: int) -> int:
        """When the first 1 stands in (after, limit], of sequences without live bits; ``FOREVER`` if there is none."""
        if not self._after <= after < self._until:
            self._after = self._until = after
            self._ones = []
        while True:
            index = bisect_right(self._ones, after)
            if index < len(self._ones):
                return self._ones[index] if self._ones[index] <= limit else FOREVER
            if self._until >= limit or self._until >= self._end:
                return FOREVER
            start, self._until = self._until, self._until + WINDOW * self.sequence.period
            self._after = after  # between it and ``start`` there is no 1
            self._ones = self.sequence.ones(start, self._until).tolist()
