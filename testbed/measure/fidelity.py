"""Are links what the topology says? Asked before a run measures: a sample of them is timed and loaded.

A link whose delay is off by more than 1 ms or 2 %, whichever is more, or its rate by more than 5 %, makes the run
INVALID. Only the link itself is crossed, by frames of our own (see ``frames``), in each direction for itself: all ends
are on one machine and read one clock, so a one-way delay is measured as such.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.measure import trials
from testbed.measure.frames import Direction
from testbed.measure.probes.base import Recorder
from testbed.measure.stats import median
from testbed.model.quantities import format_rate_bps
from testbed.plan.types import Link, Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

DELAY_SECONDS, DELAY_SHARE = 0.001, 0.02
"""What a delay may be off: the greater of the two."""
RATE_SHARE = 0.05
LINKS = 8
"""How many links are tried at most, chosen by seed."""
SECONDS = 20.0
"""After that no further trial begins."""
TRIALS = 3
"""A link fails if it is off in each of so many trials: what a busy machine does to one of them is not the link's."""


@dataclass
class Check:
    """One direction of one link. Delays are seconds, rates bits per second with all headers."""

    link: str
    source: str
    target: str
    delay_wanted: float | None = None
    delay_seen: float | None = None
    """The median."""
    sent: int = 0
    received: int = 0
    rate_wanted: int | None = None
    rate_seen: float | None = None
    reasons: list[str] = field(default_factory=list)
    """What is wrong; empty if all is well."""
    notes: list[str] = field(default_factory=list)
    """What could not be told."""

    @property
    def name(self) -> str:
        """The link and the direction, in words."""
        return f"link {self.link}, from {self.source} to {self.target}"

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a self-check found."""

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    """Links with a delay or a rate that were not tried."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with what was tried."""
        return all(check.ok for check in self.checks)

    @property
    def reasons(self) -> list[str]:
        """What is wrong."""
        return [reason for check in self.checks for reason in check.reasons]


def shaped_links(plan: Plan) -> list[Link]:
    """The links of ``plan`` that have a delay or a rate, in its order."""
    return [
        link
        for link in plan.links
        if any(way.delay_us or way.jitter_us or way.rate_bps for way in (link.forward, link.backward))
    ]


def check_fidelity(
    lab: Lab, *, links: int = LINKS, seed: int | None = None, seconds: float = SECONDS, recorder: Recorder | None = None
) -> Fidelity:
    """Try at most ``links`` of the links that have a delay or a rate, chosen by ``seed`` (the plan's own).

    Their delays are timed at the same time, then their rates are loaded, as many at once as one thread can. Each
    direction is an event ``fidelity``, and the whole of it, with what it cost, one ``fidelity-check``.
    """
    started, cpu = time.monotonic(), time.thread_time()
    shaped = shaped_links(lab.plan)
    chosen = random.Random(lab.plan.seed if seed is None else seed).sample(shaped, min(links, len(shaped)))
    with ExitStack() as stack:
        opened = list(_open(lab, chosen, stack))
        tried = [(direction, check) for direction, check in opened if direction is not None]
        _delays(tried, started + seconds)
        for direction, _ in tried:
            direction.deaf()
        _rates(tried, started + seconds)
    names = {link.name for link in chosen}
    unchecked = tuple(link.name for link in shaped if link.name not in names)
    found = Fidelity(tuple(check for _, check in opened), unchecked, time.monotonic() - started)
    if recorder is not None:
        _record(recorder, found, time.thread_time() - cpu)
    return found


def _open(lab: Lab, links: Iterable[Link], stack: ExitStack) -> Iterator[tuple[Direction | None, Check]]:
    for link in links:
        delayed = any(way.delay_us or way.jitter_us for way in (link.forward, link.backward))
        for end, way in ((link.a, link.forward), (link.b, link.backward)):
            peer = link.peer(end.node)
            check = Check(link.name, end.node, peer.node)
            if way.loss < 1:
                check.delay_wanted = way.delay_us / 1e6 if delayed else None
                check.rate_wanted = way.rate_bps
            try:
                direction = Direction(link, end.node, lab.namespace(end.node), lab.namespace(peer.node))
            except OSError as error:
                check.reasons.append(f"{check.name}: it cannot be tried: {error.strerror or error}")
                yield None, check
            else:
                yield stack.enter_context(direction), check


def _delays(opened: list[tuple[Direction, Check]], deadline: float) -> None:
    """Time all that have a delay to be; once more those that are off."""
    left = [(direction, check) for direction, check in opened if check.delay_wanted is not None]
    for trial in range(TRIALS):
        if left and time.monotonic() > deadline:
            for _, check in left:
                check.notes.append("no time was left to try its delay")
            return
        timings = trials.time_delays([direction for direction, _ in left]) if left else []
        off = []
        for (direction, check), timing in zip(left, timings, strict=True):
            reason = _delay_of(check, timing)
            if reason and trial == TRIALS - 1:
                check.reasons.append(f"{check.name}: {reason}")
            elif reason:
                off.append((direction, check))
        left = off


def _delay_of(check: Check, timing: trials.Timing) -> str:
    check.sent, check.received, check.delay_seen = timing.sent, len(timing.delays), None
    if timing.error:
        return f"a packet cannot be sent: {timing.error}"
    if not timing.delays:
        return f"none of {timing.sent} packets came through"
    check.delay_seen = median(timing.delays)
    jitter = timing.direction.impairment.jitter_us / 1e6
    return delay_reason(check.delay_wanted or 0.0, check.delay_seen, jitter, check.received)


def delay_reason(wanted: float, seen: float, jitter: float = 0.0, count: int = 1) -> str:
    """What is wrong with a median one-way delay of ``count`` packets; empty if nothing is. Seconds.

    With jitter the median of few packets is itself uncertain: four times its standard error for a uniform distribution
    of that half width, ``jitter / sqrt(count)``, are allowed on top.
    """
    allowed = max(DELAY_SECONDS, DELAY_SHARE * wanted) + 4 * jitter / math.sqrt(count)
    if abs(seen - wanted) <= allowed + 1e-9:
        return ""
    return f"delay is {_ms(seen)}, not {_ms(wanted)} (at most {_ms(allowed)} off is allowed)"


def _rates(opened: list[tuple[Direction, Check]], deadline: float) -> None:
    """Load all that have a rate; once more those that are off."""
    left: list[tuple[trials.Load, Check]] = []
    for direction, check in opened:
        if check.rate_wanted is None:
            continue
        load = _load_of(direction, check.rate_wanted)
        if load.frames_a_second <= trials.MOST_FRAMES_A_SECOND:
            left.append((load, check))
        else:
            check.notes.append(f"its rate, {format_rate_bps(load.rate)}, is more than can be loaded here")
    for trial in range(TRIALS):
        checks = {id(load): check for load, check in left}
        off = []
        for group in trials.groups([load for load, _ in left]):
            if time.monotonic() > deadline:
                for load in group:
                    checks[id(load)].notes.append("no time was left to try its rate")
                continue
            trials.load_at_once(group)
            off += [load for load in group if not _rate_is_right(load, checks[id(load)], last=trial == TRIALS - 1)]
        left = [(_load_of(load.direction, load.rate), checks[id(load)]) for load in off]


def _load_of(direction: Direction, rate: int) -> trials.Load:
    way = direction.impairment
    return trials.Load(direction, rate, lambda seen, grain: not rate_reason(rate, seen, way.loss, way.duplicate, grain))


def _rate_is_right(load: trials.Load, check: Check, *, last: bool) -> bool:
    """False asks for another trial, unless this is the ``last``; then what is wrong goes into the check."""
    check.rate_seen = load.nearest
    if load.right(load.nearest, load.grain):
        return True
    check.rate_seen = median(load.fair or load.windows)
    if last and not load.fair and check.rate_seen < load.rate:
        check.notes.append("the machine was too busy to load it")
    elif last:
        way = load.direction.impairment
        reason = rate_reason(load.rate, check.rate_seen, way.loss, way.duplicate, load.grain)
        check.reasons += [f"{check.name}: {reason}"] if reason else []
    return False


def rate_reason(wanted: float, seen: float, loss: float = 0.0, duplicate: float = 0.0, grain: float = 0.0) -> str:
    """What is wrong with a rate, bits per second; empty if nothing is. ``grain``: what one packet more or less is.

    Packets may be lost or doubled before the rate is enforced or after it, so both are right.
    """
    low, high = wanted * (1 - loss) * (1 - RATE_SHARE) - grain, wanted * (1 + duplicate) * (1 + RATE_SHARE) + grain
    if low <= seen <= high:
        return ""
    return (
        f"rate is {_rate(seen)}, not {format_rate_bps(round(wanted))} "
        f"({100 * seen / wanted:.0f} % of it; {100 * RATE_SHARE:.0f} % off is allowed)"
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _rate(bps: float) -> str:
    whole = round(bps)
    return format_rate_bps(round(whole, 3 - len(str(whole))))


def _record(recorder: Recorder, found: Fidelity, cost: float) -> None:
    for check in found.checks:
        recorder.event(
            "fidelity",
            check.source,
            link=check.link,
            target=check.target,
            ok=check.ok,
            delay_wanted=check.delay_wanted,
            delay_seen=None if check.delay_seen is None else round(check.delay_seen, 9),
            sent=check.sent,
            received=check.received,
            rate_wanted=check.rate_wanted,
            rate_seen=None if check.rate_seen is None else round(check.rate_seen),
            reasons=check.reasons,
            notes=check.notes,
        )
    recorder.event(
        "fidelity-check",
        links=len({check.link for check in found.checks}),
        unchecked=len(found.unchecked),
        ok=found.ok,
        seconds=round(found.seconds, 6),
        cost=round(cost, 6),
    )
