"""Schedules by chance: which faults when and for how long, the same for the same seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from testbed.errors import TestbedError
from testbed.faults.base import fault_class
from testbed.faults.chaos.menu import menu
from testbed.faults.timeline import Planned, parse, schedule
from testbed.plan.types import Plan

SHORTEST_US = 100_000
"""No fault is drawn for less, nor made shorter when a schedule is shrunk."""
LONGEST_US = 10_000_000


def draw(plan: Plan, seed: int, *, seconds: float, kinds: Iterable[str] = (), most: int = 3) -> list[Planned]:
    """Faults for ``seconds``, at most ``most`` of them at once, of ``kinds`` or of all that fit the plan.

    Each is over when the time is. TestbedError if a kind does not exist or fit, or the time is too short.
    """
    length = round(seconds * 1e6)
    if length < 2 * SHORTEST_US or most < 1:
        raise TestbedError(
            f"{seconds:g} s with at most {most} faults at once is no chaos", remedy="at least 0.2 s and 1 fault"
        )
    chance = random.Random(f"chaos {seed}")
    longest = min(LONGEST_US, max(length // 4, 2 * SHORTEST_US))
    faults = [{**fault, **_hold(fault, longest, chance)} for fault in menu(plan, chance, kinds)]
    # On average so many begin while one holds that somewhat more than ``most`` would hold at once.
    gap = max(2 * SHORTEST_US, longest * 7 // 10 // most)
    drawing = {"faults": faults, "min": f"{SHORTEST_US}us", "max": f"{gap}us", "until": f"+{length}us"}
    entries, problems = parse([{"random": drawing}])
    assert not problems, problems
    return at_most(_inside(schedule(entries, seed), length), most)


def at_most(planned: Sequence[Planned], most: int) -> list[Planned]:
    """Those that begin while fewer than ``most`` of the ones before still hold."""
    kept: list[Planned] = []
    for one in planned:
        if sum(other.at_us + (other.hold_us or 0) > one.at_us for other in kept) < most:
            kept.append(one)
    return kept


def _hold(fault: dict[str, Any], longest: int, chance: random.Random) -> dict[str, str]:
    if fault_class(fault["fault"]).momentary:
        return {}
    return {"for": f"{chance.randint(1, longest // SHORTEST_US) * SHORTEST_US}us"}


def _inside(planned: Iterable[Planned], length: int) -> list[Planned]:
    """Holds shortened so that all is over after ``length``."""
    rounded = [replace(one, at_us=one.at_us // 1000 * 1000) for one in planned]
    return [
        one if one.hold_us is None else replace(one, hold_us=min(one.hold_us, length - one.at_us))
        for one in rounded
        if one.at_us + SHORTEST_US <= length
    ]
