"""Nothing is done: every name is the site's own address, and everything comes in through the education network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.edge.dns.ask import resolve

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.edge.plan.world import World
    from testbed.plan.builder import PlanBuilder
    from testbed.progress import Progress

__all__ = ["expand", "resolve", "start"]


def expand(world: World, build: PlanBuilder) -> None:
    """The campus is all there is."""


def start(edge: Edge, progress: Progress) -> None:
    """Nothing to wait for."""
