"""Steps of the scenarios in which instances die and come, with what clients met in them. Pure, from a run's events."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed.measure.downloads import Recorded, downloads
from testbed.measure.reader import Event, RunReader, Step
from testbed.measure.stats import Time, ecdf

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that the scenario did to the service."""

    t: float
    what: str
    node: str


@dataclass(frozen=True, slots=True)
class Introduction:
    """Something that a client logged of an introduction, see ``clientlog.Mark``."""

    t: float
    client: str
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Fresh:
    """One fresh client, see ``fresh.FreshFetch``; times are seconds after the run's start."""

    step: str
    node: str
    number: int
    started: float
    first_byte: float | None
    last_byte: float | None
    ended: float
    outcome: str
    instance: str

    @property
    def ok(self) -> bool:
        """It has the whole file."""
        return self.outcome == "ok"

    @property
    def cut(self) -> bool:
        """It was ended before its outcome was known."""
        return self.outcome == "unfinished"

    def to_first_byte(self) -> Time:
        """From the start of its tor to the first byte; never where it failed, longer than that where it was cut."""
        if self.ok and self.first_byte is not None:
            return Time(self.first_byte - self.started)
        return Time(self.ended - self.started if self.cut else math.inf, observed=False)


@dataclass(frozen=True)
class Trial:
    """One step and all that was recorded of it."""

    step: Step
    moments: tuple[Moment, ...]
    downloads: tuple[Recorded, ...]
    fresh: tuple[Fresh, ...]
    introductions: tuple[Introduction, ...]
    readings: tuple[Event, ...]
    """``hsdir`` events."""

    @property
    def n(self) -> int:
        """Number of instances."""
        return int(self.step.detail.get("n", 0))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node names of the instances."""
        return tuple(str(name) for name in self.step.detail.get("nodes", ()))

    @property
    def repeat(self) -> int:
        """Which repeat this is, from 1."""
        return self.step.repeat

    def word(self, key: str) -> str:
        """A detail of the step as text."""
        return str(self.step.detail.get(key, ""))

    def moment(self, what: str) -> Moment | None:
        """The first moment of that kind."""
        return next((moment for moment in self.moments if moment.what == what), None)


def trials(run: RunReader, experiment: str) -> list[Trial]:
    """The steps of an experiment in the order of time."""
    steps = run.steps(experiment)
    if not steps:
        return []
    got: dict[str, list[Recorded]] = defaultdict(list)
    for download in downloads(run):
        got[download.step].append(download)
    moments = _by_step(run, "moment", lambda event: Moment(event.t, str(event.detail.get("what", "")), event.node))
    fresh = _by_step(run, "fresh", _fresh)
    introductions = _by_step(run, "introduction", _introduction)
    readings = _by_step(run, "hsdir", lambda event: event)
    return [
        Trial(
            step,
            tuple(moments[step.name]),
            tuple(got[step.name]),
            tuple(fresh[step.name]),
            tuple(introductions[step.name]),
            tuple(readings[step.name]),
        )
        for step in steps
    ]


def grouped(found: Iterable[T], key: Any) -> dict[Any, list[T]]:
    """By ``key``, in the order in which keys come first."""
    groups: dict[Any, list[T]] = {}
    for item in found:
        groups.setdefault(key(item), []).append(item)
    return groups


def quantile(times: Sequence[Time], share: float) -> float:
    """The time within which that share has finished, by Kaplan-Meier; inf if it never did, NaN of nothing."""
    if not times:
        return math.nan
    t, finished = ecdf(times)
    return next((float(moment) for moment, part in zip(t, finished, strict=True) if part >= share - 1e-9), math.inf)


def within(times: Sequence[Time], seconds: float) -> float:
    """The share that has finished within ``seconds``; NaN of nothing."""
    if not times:
        return math.nan
    t, finished = ecdf(times)
    return max((float(part) for moment, part in zip(t, finished, strict=True) if moment <= seconds), default=0.0)


def served_by(got: Iterable[Recorded]) -> Counter[str]:
    """Complete downloads by instance."""
    return Counter(download.instance for download in got if download.ok)


def _by_step(run: RunReader, kind: str, make: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for event in run.events(kind):
        found[str(event.detail.get("step", ""))].append(make(event))
    return found


def _introduction(event: Event) -> Introduction:
    detail = event.detail
    return Introduction(event.t, event.node, str(detail.get("what", "")), float(detail.get("seconds") or 0.0))


def _fresh(event: Event) -> Fresh:
    detail = event.detail

    def moment(key: str) -> float | None:
        value = detail.get(key)
        return None if value is None else float(value)

    return Fresh(
        step=str(detail.get("step", "")),
        node=event.node,
        number=int(detail.get("number") or 0),
        started=moment("started") or 0.0,
        first_byte=moment("first_byte"),
        last_byte=moment("last_byte"),
        ended=moment("ended") or event.t,
        outcome=str(detail.get("outcome", "")),
        instance=str(detail.get("instance", "")),
    )
