"""How users of the providers reach the sites: one module a mode, all with the same small interface.

``world``, ``build`` and the campus without a mode are those of ``expand``; a mode adds to them what is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Protocol, cast

from testbed.edge.dns.authority import View
from testbed.edge.spec import Mode

if TYPE_CHECKING:
    from testbed.edge.network import Edge
    from testbed.edge.plan.world import World
    from testbed.plan.builder import PlanBuilder
    from testbed.progress import Progress


class EdgeMode(Protocol):
    """What a module of this package offers."""

    @staticmethod
    def expand(world: World, build: PlanBuilder) -> None:
        """Pure: add to the plan what the mode needs beyond the campus that all modes have."""

    @staticmethod
    def start(edge: Edge, progress: Progress) -> None:
        """Start what the plan's services do not, and wait until users can be served."""

    @staticmethod
    def resolve(edge: Edge, client: str, host: str) -> IPv4Address:
        """The address that ``client`` gets for ``host``."""


def views_of(mode: EdgeMode, world: World) -> Sequence[View]:
    """What the name server tells resolvers by their network; a mode without ``views`` tells all the same."""
    views: Callable[[World], Sequence[View]] | None = getattr(mode, "views", None)
    return views(world) if views else ()


def mode_of(name: Mode) -> EdgeMode:
    """The module of a mode."""
    return cast(EdgeMode, import_module(f"{__name__}.{name.replace('-', '_')}"))
