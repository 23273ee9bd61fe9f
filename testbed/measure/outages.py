"""Outages from the outcomes of a question that is asked again and again. Pure.

A question asked at a fixed period sees a service only when it asks: an outage that began between a good answer and a
failed one began somewhere in between. So each edge of an outage is a range, and its length too. An outage that fits
between two questions is not seen at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Attempt:
    """One question: when it was asked, when its outcome was known (seconds of any one clock), whether it was good."""

    started: float
    ended: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Edge:
    """A moment that is known to lie between two others."""

    earliest: float
    latest: float

    @property
    def middle(self) -> float:
        """The best guess."""
        return (self.earliest + self.latest) / 2

    @property
    def uncertainty(self) -> float:
        """How far from ``middle`` it may be, seconds."""
        return (self.latest - self.earliest) / 2


@dataclass(frozen=True, slots=True)
class Outage:
    """A row of failed attempts. ``start`` is None if there was no good one before, ``end`` if none after."""

    start: Edge | None
    end: Edge | None
    first_lost: float
    """When the first failed attempt was made."""
    last_lost: float
    """When the last one was made."""
    lost: int
    """Failed attempts."""

    @property
    def complete(self) -> bool:
        """Whether both edges were seen."""
        return self.start is not None and self.end is not None

    @property
    def seconds(self) -> float:
        """Best guess of its length. Of an edge that was not seen only the failed attempts count."""
        start = self.start.middle if self.start else self.first_lost
        return (self.end.middle if self.end else self.last_lost) - start

    @property
    def shortest(self) -> float:
        """It was at least as long, seconds."""
        start = self.start.latest if self.start else self.first_lost
        return max(0.0, (self.end.earliest if self.end else self.last_lost) - start)

    @property
    def longest(self) -> float | None:
        """It was at most as long, seconds; None where an edge was not seen."""
        return self.end.latest - self.start.earliest if self.start and self.end else None


def outages(attempts: Iterable[Attempt]) -> list[Outage]:
    """The outages among ``attempts``, in the order of time.

    An outage began after the last good attempt before it was made, and before the first failed one could have been
    answered. That is, before it ended, or within the time that the slowest good answer took: a request whose time-out
    is long did not fail at its end. It ended after the last failed attempt was made and before the next good answer.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.started)
    answer = max((attempt.ended - attempt.started for attempt in ordered if attempt.ok), default=None)
    found: list[Outage] = []
    before: Attempt | None = None
    runs = [(ok, list(group)) for ok, group in groupby(ordered, key=lambda attempt: attempt.ok)]
    for index, (ok, run) in enumerate(runs):
        if ok:
            before = run[-1]
            continue
        after = runs[index + 1][1][0] if index + 1 < len(runs) else None
        found.append(_outage(before, run, after, answer))
    return found


def _outage(before: Attempt | None, failed: Sequence[Attempt], after: Attempt | None, answer: float | None) -> Outage:
    first, last = failed[0], failed[-1]
    latest = first.ended if answer is None else min(first.ended, first.started + answer)
    return Outage(
        start=None if before is None else Edge(before.started, max(latest, before.started)),
        end=None if after is None else Edge(last.started, max(after.ended, last.started)),
        first_lost=first.started,
        last_lost=last.started,
        lost=len(failed),
    )
