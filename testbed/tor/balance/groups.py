"""Hybrid publishing: a different group of instances in each HSDir's descriptor. Pure.

A client takes one of the responsible HSDirs at random, and then one of the introduction points there at random. So
the groups have to be of one size, each instance in equally many of them, with equally many introduction points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from testbed.tor.distribute.document import MAX_POINTS, IntroPoint

POINTS_WANTED = 2
"""Introduction points of each instance in a descriptor, as OnionBalance has it; one is none if its relay fails."""
MAX_INSTANCES = 60
"""Six HSDirs with ten instances each."""


def largest_group(points: int) -> int:
    """How many instances of ``points`` introduction points each go into one descriptor."""
    return MAX_POINTS // max(1, min(POINTS_WANTED, points))


def group(
    hsdirs: Sequence[str],
    instances: Sequence[str],
    previous: Mapping[str, Sequence[str]] | None = None,
    *,
    largest: int = MAX_POINTS // POINTS_WANTED,
) -> dict[str, tuple[str, ...]]:
    """The instances whose introduction points go into each HSDir's descriptor, at most ``largest`` in one.

    The sizes of groups differ by at most one; every instance is in equally many, as many as makes shares most even and
    no more. What is in ``previous`` stays where that allows. ValueError if there are more than fit.
    """
    if not instances or not hsdirs:
        return {}
    if len(instances) > largest * len(hsdirs):
        raise ValueError(
            f"{len(instances)} instances do not fit into {len(hsdirs)} descriptors of at most {largest} each"
        )
    copies = _copies(len(hsdirs), len(instances), largest)
    groups = _kept(hsdirs, instances, previous or {}, copies, largest)
    for _ in range(copies):
        for name in instances:
            if sum(name in members for members in groups.values()) < copies:
                _smallest(groups, name).append(name)
    _level(groups)
    order = {name: place for place, name in enumerate(instances)}
    return {hsdir: tuple(sorted(members, key=order.__getitem__)) for hsdir, members in groups.items()}


def _copies(places: int, instances: int, largest: int) -> int:
    """In how many groups each instance is: the fewest of those that make the most and the least used most alike."""

    def unevenness(copies: int) -> tuple[Fraction, int]:
        small, larger = divmod(instances * copies, places)
        if small == 0:
            return Fraction(10**9), copies  # an HSDir without a descriptor
        # an instance is at best in small groups only, at worst in large ones only
        best = min(copies, places - larger)
        worst = min(copies, larger)
        most = Fraction(best, small) + Fraction(copies - best, small + 1)
        least = Fraction(worst, small + 1) + Fraction(copies - worst, small)
        return most / least, copies

    allowed = [n for n in range(1, places + 1) if -(-instances * n // places) <= min(largest, instances)]
    return min(allowed, key=unevenness)


def _kept(
    hsdirs: Sequence[str], instances: Sequence[str], previous: Mapping[str, Sequence[str]], copies: int, largest: int
) -> dict[str, list[str]]:
    """What of the previous groups may stay: living members, none too often, no group too large."""
    most = min(largest, -(-len(instances) * copies // len(hsdirs)))
    seen = dict.fromkeys(instances, 0)
    groups: dict[str, list[str]] = {}
    for hsdir in hsdirs:
        groups[hsdir] = []
        for name in previous.get(hsdir, ()):
            if name in seen and seen[name] < copies and len(groups[hsdir]) < most:
                groups[hsdir].append(name)
                seen[name] += 1
    return groups


def _smallest(groups: Mapping[str, list[str]], name: str) -> list[str]:
    return min((members for members in groups.values() if name not in members), key=len)


def _level(groups: Mapping[str, list[str]]) -> None:
    """Move members from the largest group to the smallest until they differ by one at most."""
    while True:
        small, large = min(groups.values(), key=len), max(groups.values(), key=len)
        if len(large) - len(small) <= 1:
            return
        name = next(name for name in reversed(large) if name not in small)
        large.remove(name)
        small.append(name)


def choose_points(
    offered: Mapping[str, Sequence[IntroPoint]], wanted: int = POINTS_WANTED
) -> dict[str, tuple[IntroPoint, ...]]:
    """Introduction points for one descriptor: of each instance equally many, at most ``wanted``, no relay twice.

    A client finds the key for an introduction point by its relay, and takes the first that fits: of two points at one
    relay the second is never used, and the first one's instance gets the clients of both. As many instances as can be
    have a point; if relays do not suffice for all, the others get an empty list.
    """
    names = list(offered)
    wanted = min(wanted, MAX_POINTS // max(1, len(names)))
    chosen: dict[str, dict[str, IntroPoint]] = {name: {} for name in names}
    for number in range(1, max(1, wanted) + 1):
        trial = {name: dict(points) for name, points in chosen.items()}
        missing = [name for name in names if not _add_one(name, offered, trial, {name})]
        if missing and number > 1:
            break  # not one more for everybody: leave it even
        chosen = trial
    return {name: tuple(points.values()) for name, points in chosen.items()}


def _add_one(
    name: str,
    offered: Mapping[str, Sequence[IntroPoint]],
    chosen: dict[str, dict[str, IntroPoint]],
    asked: set[str],
) -> bool:
    """Give ``name`` one more relay, if need be one that another can replace (augmenting path of a matching)."""
    holder = {relay: other for other, points in chosen.items() for relay in points}
    mine = [point for point in offered[name] if point.relay not in chosen[name]]
    for point in mine:
        if point.relay not in holder:
            chosen[name][point.relay] = point
            return True
    for point in mine:
        other = holder[point.relay]
        if other in asked:
            continue
        asked.add(other)
        taken = chosen[other].pop(point.relay)
        chosen[name][point.relay] = point
        if _add_one(other, offered, chosen, asked):
            return True
        del chosen[name][point.relay]
        chosen[other][point.relay] = taken
    return False
