"""Nothing is done: every name is the site's own address, and everything comes in through the education network."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.edge.world import World
    from testbed.plan.builder import PlanBuilder
    from testbed.progress import Progress


def expand(world: World, build: PlanBuilder) -> None:
    """The campus is all there is."""


def start(edge: Edge, progress: Progress) -> None:
    """Nothing to wait for."""


def resolve(edge: Edge, client: str, host: str) -> IPv4Address:
    """The site's own address."""
    return edge.site(host).address
