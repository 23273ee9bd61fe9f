"""What the two modes differ in: who goes where, which introduction points, in which periods. Pure.

``distributor``: instances share the service's key; a descriptor is one instance's, signed anew. ``hybrid``: instances
have keys of their own; a descriptor mixes the introduction points of a group of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from testbed.tor.balance import groups
from testbed.tor.distribute.document import MAX_POINTS, Content, IntroPoint
from testbed.tor.distribute.plan import place
from testbed.tor.distribute.shelf import Names


class Composer(Protocol):
    """One mode."""

    both_halves: bool
    """Whether it works in both halves of a time period, so that the descriptor for the other half is placed as well."""

    def limit(self, hsdirs: int) -> int:
        """Most instances that can be served with so many HSDirs."""

    def plan(
        self,
        hsdirs: Sequence[str],
        live: Mapping[str, Content],
        previous: Mapping[str, Names],
        held: Mapping[str, float],
        *,
        rotate: bool,
    ) -> dict[str, Names]:
        """The instances in each HSDir's descriptor."""

    def points(self, contents: Mapping[str, Content]) -> tuple[IntroPoint, ...]:
        """The introduction points of a descriptor of these instances."""


class Distributing:
    """One instance a descriptor."""

    both_halves = False

    def limit(self, hsdirs: int) -> int:
        """One each; more would leave some without any."""
        return hsdirs

    def plan(
        self,
        hsdirs: Sequence[str],
        live: Mapping[str, Content],
        previous: Mapping[str, Names],
        held: Mapping[str, float],
        *,
        rotate: bool,
    ) -> dict[str, Names]:
        """See ``plan.place``."""
        before = {hsdir: names[0] for hsdir, names in previous.items() if names}
        placed = place(hsdirs, list(live), before, held, rotate=rotate)
        return {hsdir: (name,) for hsdir, name in placed.items()}

    def points(self, contents: Mapping[str, Content]) -> tuple[IntroPoint, ...]:
        """All that the instance has."""
        return tuple(point for content in contents.values() for point in content.points)


class Mixing:
    """A group of instances a descriptor."""

    both_halves = True

    def limit(self, hsdirs: int) -> int:
        """Ten in each, with two introduction points."""
        return hsdirs * groups.largest_group(groups.POINTS_WANTED)

    def plan(
        self,
        hsdirs: Sequence[str],
        live: Mapping[str, Content],
        previous: Mapping[str, Names],
        held: Mapping[str, float],
        *,
        rotate: bool,
    ) -> dict[str, Names]:
        """See ``groups.group``. Where HSDirs are missing, descriptors are filled with one point of each instance."""
        if not hsdirs:
            return {}
        least = min((len(content.points) for content in live.values()), default=groups.POINTS_WANTED)
        largest = max(groups.largest_group(least), -(-len(live) // len(hsdirs)))
        names = list(live)[: MAX_POINTS * len(hsdirs)]
        return groups.group(hsdirs, names, previous, largest=min(largest, MAX_POINTS))

    def points(self, contents: Mapping[str, Content]) -> tuple[IntroPoint, ...]:
        """Equally many of each, no relay twice; see ``groups.choose_points``."""
        chosen = groups.choose_points({name: content.points for name, content in contents.items()})
        return tuple(point for points in chosen.values() for point in points)


COMPOSERS: dict[str, Composer] = {"distributor": Distributing(), "hybrid": Mixing()}
"""By the word in ``publish``."""
