"""Which way users of a provider are sent, from what is known of links and redirector. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from testbed.edge.plan.world import World

EDUCATION = "education"
"""The way of users who are not redirected: the education network's border router lets them in."""


@dataclass
class Probes:
    """Probes of one thing: down after ``misses`` without answer in a row, up after ``answers``."""

    misses: int
    answers: int
    up: bool = True
    _row: int = field(default=0, init=False)

    def fail(self) -> None:
        """Down at once, for a reason that needs no probes."""
        self.up, self._row = False, 0

    def heard(self, answered: bool) -> bool:
        """One more probe; whether that changed ``up``."""
        if answered == self.up:
            self._row = 0
            return False
        self._row += 1
        if self._row < (self.answers if answered else self.misses):
            return False
        self.up, self._row = answered, 0
        return True


def ways(
    world: World,
    links: Mapping[str, bool],
    serving: Collection[str],
    policy: Literal["nearest", "education"],
) -> dict[str, str]:
    """By provider the one whose public addresses its users are sent to, or ``EDUCATION``.

    ``links`` says of each provider whether the campus is reached through it, ``serving`` names those whose listener
    at the redirector answers. A provider's own addresses come first; then, by ``policy``, the way that is nearest
    between networks, where the education network wins against equals.
    """
    return {isp.name: _way(world, isp.name, links, isp.name in serving, policy) for isp in world.isps}


def _way(world: World, isp: str, links: Mapping[str, bool], serves: bool, policy: str) -> str:
    if not serves:
        return EDUCATION
    if links[isp]:
        return isp
    if policy == "education":
        return EDUCATION
    best, nearest = EDUCATION, world.delay_us(isp, world.education.name)
    for other in world.isps:
        if other.name != isp and links[other.name] and world.delay_us(isp, other.name) < nearest:
            best, nearest = other.name, world.delay_us(isp, other.name)
    return best
