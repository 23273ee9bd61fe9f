"""Nodes and links while a plan is being made: what was asked for, and where in the topology."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.errors import Path
from testbed.plan.types import Impairment, Kind, Node


@dataclass(frozen=True, slots=True)
class RouteDraft:
    """A static route as written: destination prefix or ``default``, and the next hop's address."""

    to: str
    via: str
    path: Path


@dataclass(slots=True)
class NodeDraft:
    """A node before its interfaces and routes are known."""

    node: Node
    path: Path
    subnet: str | None = None
    """Of a switch, as written."""
    routes: Sequence[RouteDraft] = ()
    doubtful: bool = False
    """One of its links is wrong, so that what seems to be missing on it need not be."""

    @property
    def kind(self) -> Kind:
        return self.node.kind

    @property
    def owner(self) -> str:
        """Who brought the node, for messages."""
        return f"section `{self.node.subsystem}`" if self.node.subsystem else "`nodes`"


@dataclass(slots=True)
class EndDraft:
    """One end of a link before it has addresses. ``interface`` is empty until one has been chosen."""

    node: str
    interface: str
    path: Path
    ifname: str = ""


@dataclass(slots=True)
class LinkDraft:
    """A link before it has addresses."""

    ends: tuple[EndDraft, EndDraft]
    path: Path
    forward: Impairment
    backward: Impairment
    mtu: int
    addresses: tuple[str | None, str | None] | None = None
    """As written."""
    routed: bool = True
    """Whether computed routes may lead over it."""
    nodes: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = (self.ends[0].node, self.ends[1].node)

    @property
    def owner(self) -> str:
        """The link in messages."""
        return f"the link of {self.nodes[0]!r} and {self.nodes[1]!r}"
