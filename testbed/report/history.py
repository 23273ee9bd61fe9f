"""What happened to the network during a run: faults, the wire's deaths, changes of links. From the run's events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.measure.reader import Event


@dataclass
class Course:
    """One injection of a fault. Times are seconds since the run's start; None: there is no such event."""

    id: str
    kind: str
    subject: str = ""
    """The node, link or target that it is about, as read from its settings."""
    parent: str = ""
    """Id of the fault that this one is part of."""
    first: float = 0.0
    """Time of its first event, whatever that was."""
    start: float | None = None
    verified: float | None = None
    failed: float | None = None
    healed: float | None = None
    seen: str = ""
    """What its verification saw, or why it did not take."""
    not_healed: list[tuple[float, str]] = field(default_factory=list)
    """Attempts to heal that failed, and what they say is left."""

    @property
    def began(self) -> float:
        """Where to draw its beginning: of one that was injected before the run, the run's start."""
        return self.start if self.start is not None else 0.0

    def ended(self, end: float) -> float:
        """Where to draw its end: of one that was never healed, ``end``."""
        return self.healed if self.healed is not None else max(end, self.first, self.began)


@dataclass(frozen=True, slots=True)
class Stop:
    """A stretch in which the wire carried nothing. ``end`` is None if it did not come back."""

    start: float
    end: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """A link that was given other properties; ``interrupted``: seconds for which it carried nothing meanwhile."""

    t: float
    link: str
    interrupted: float | None


def finite(value: object) -> float | None:
    """A number as a float; None for anything else that may stand in an event, also for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def courses(events: Iterable[Event]) -> list[Course]:
    """The faults among events of kind ``fault``, by the time of their first event. Any of a fault's may be missing."""
    current: dict[str, Course] = {}
    found: list[Course] = []
    for event in events:
        identity, phase = str(event.detail.get("id", "")), event.detail.get("phase")
        course = current.get(identity)
        if course is None or (phase == "start" and course.start is not None):  # ids of another lab may be the same
            kind = str(event.detail.get("fault", ""))
            parent = str(event.detail.get("parent") or "")
            course = Course(identity, kind, event.node, parent, first=event.t)
            current[identity] = course
            found.append(course)
        _add(course, event)
    return sorted(found, key=lambda course: course.first)


def _add(course: Course, event: Event) -> None:
    detail = event.detail
    match detail.get("phase"):
        case "start":
            course.start = event.t
            course.subject = _subject(event.node, detail.get("settings"))
        case "verified":
            course.verified, course.seen = event.t, str(detail.get("seen") or "")
        case "failed":
            course.failed, course.seen = event.t, str(detail.get("message") or "")
        case "healed":
            course.healed = event.t
        case "not-healed":
            course.not_healed.append((event.t, str(detail.get("message") or "")))


def _subject(node: str, settings: object) -> str:
    given: Mapping[str, Any] = settings if isinstance(settings, Mapping) else {}
    words = [node] if node else []
    if isinstance(link := given.get("link"), list):
        words.append("\u2013".join(map(str, link)))
    if isinstance(groups := given.get("groups"), list):
        words.append(
            " | ".join(" ".join(map(str, group)) if isinstance(group, list) else str(group) for group in groups)
        )
    if isinstance(nodes := given.get("nodes"), list):
        words.append(" ".join(map(str, nodes)))
    words += [str(given[name]) for name in ("service",) if given.get(name)]
    if given.get("target"):
        words.append(f"to {given['target']}")
    if given.get("port"):
        words.append(f"port {given['port']}")
    return ", ".join(words)


def wire_stops(events: Iterable[Event]) -> list[Stop]:
    """When the userspace wire was dead or hung, from its events ``wire-died``, ``wire-hung`` and ``wire-restarted``."""
    found: list[Stop] = []
    dead: Event | None = None
    for event in events:
        if event.kind in ("wire-died", "wire-hung"):
            if dead is not None:
                found.append(_stop(dead, None))
            dead = event
        elif event.kind == "wire-restarted" and dead is not None:
            found.append(_stop(dead, event.t))
            dead = None
    return [*found, _stop(dead, None)] if dead is not None else found


def _stop(event: Event, end: float | None) -> Stop:
    return Stop(event.t, end, str(event.detail.get("how") or event.kind.removeprefix("wire-")))


def link_changes(events: Iterable[Event]) -> list[Change]:
    """Changes of links, by whomever: events of kind ``link``."""
    return [
        Change(event.t, str(event.detail.get("link", "")), finite(event.detail.get("interrupted")))
        for event in events
        if event.kind == "link"
    ]
