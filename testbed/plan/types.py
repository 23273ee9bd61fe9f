"""The plan: what a lab consists of, computed from a topology and nothing else. Self-contained JSON.

A plan names no host, no process and no clock. Links join nodes; where a node's namespace lives is the lab's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network
Kind = Literal["host", "router", "switch"]
RuntimeName = Literal["process", "container"]


class Frozen(BaseModel):
    """Base of everything in a plan: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Impairment(Frozen):
    """What a link does to the packets of one direction. All zero: nothing."""

    delay_us: int = 0
    """One-way delay, microseconds."""
    jitter_us: int = 0
    """Half width of the delay's variation, microseconds."""
    loss: float = 0.0
    """Fraction of packets lost, 0 to 1; ``duplicate`` and ``corrupt`` likewise."""
    loss_burst: float | None = None
    """Mean length of a burst of losses, packets; None: each packet is lost independently."""
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: bool = False
    """Whether jitter may change the order of packets."""
    rate_bps: int | None = None
    """Bits per second; None: not limited."""

    @property
    def needs_engine(self) -> bool:
        """Whether more than a token bucket is needed (netem or the userspace wire)."""
        return bool(self.delay_us or self.jitter_us or self.loss or self.duplicate or self.corrupt or self.reorder)


class End(Frozen):
    """One end of a link: an interface of a node."""

    node: str
    interface: str
    """The readable name, any length; what users see and say."""
    ifname: str
    """The kernel's name, at most 15 characters; a stable hash where the readable one is longer."""
    mac: str
    addresses: tuple[Interface, ...] = ()


class Link(Frozen):
    """A point-to-point cable between two interfaces."""

    a: End
    b: End
    mtu: int = 1500
    forward: Impairment = Impairment()
    """From ``a`` to ``b``."""
    backward: Impairment = Impairment()
    """From ``b`` to ``a``."""

    @property
    def name(self) -> str:
        """``node:interface--node:interface``."""
        return f"{self.a.node}:{self.a.interface}--{self.b.node}:{self.b.interface}"

    def end(self, node: str) -> End:
        """The end at ``node``; KeyError if the link does not touch it."""
        for end in (self.a, self.b):
            if end.node == node:
                return end
        raise KeyError(node)

    def peer(self, node: str) -> End:
        """The end away from ``node``."""
        return self.b if self.end(node) is self.a else self.a


MAIN_TABLE = 254
"""The kernel's own number of the routing table that is asked when no rule says otherwise."""


class Route(Frozen):
    """A unicast route of a node."""

    destination: Network
    via: Address
    ifname: str
    table: int = MAIN_TABLE


class Rule(Frozen):
    """A policy routing rule (ip-rule(8)): packets that match everything that is set are routed by ``table``."""

    family: Literal[4, 6] = 4
    priority: int
    """Rules are asked in this order; the main table's own rule has 32766."""
    iif: str | None = None
    """Kernel name of the interface that the packet came in by."""
    source: Network | None = None
    destination: Network | None = None
    fwmark: int | None = None
    """The packet's mark, all 32 bits of it."""
    table: int


class File(Frozen):
    """A text file that is in the node's own folder before its services start."""

    path: str
    """Relative to the folder, without ``..``."""
    text: str
    """``${dir}`` is the node's folder."""


class Neighbour(Frozen):
    """A permanent neighbour entry, so that a point-to-point link needs no ARP or ND."""

    address: Address
    mac: str
    ifname: str


class Service(Frozen):
    """A program that runs in a node from ``up`` on. ``${dir}`` in ``argv`` is the node's own folder."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    root: bool = False
    """Run as root in the node's namespace rather than as the unprivileged user (process runtime only)."""


class Node(Frozen):
    """A machine of the lab: a network namespace and what runs in it."""

    name: str
    kind: Kind = "host"
    runtime: RuntimeName = "process"
    image: str | None = None
    """Container image; None: the default one. Only for ``runtime: container``."""
    subsystem: str = ""
    """Who brought the node; empty for plain nodes."""
    role: str = ""
    """What it is within its subsystem, such as ``authority`` or ``exit``."""
    memory_bytes: int | None = None
    pids: int | None = None
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    services: tuple[Service, ...] = ()
    rules: tuple[Rule, ...] = ()
    loopback: tuple[Interface, ...] = ()
    """Addresses on ``lo`` besides the usual ones, such as one that several servers share."""
    sysctls: dict[str, str] = {}
    """Kernel settings of the namespace, as ``net/ipv4/...``."""
    nft: str = ""
    """An nftables ruleset, loaded in one transaction. Its tables are the node's own: loading it again replaces them."""
    files: tuple[File, ...] = ()


class Plan(Frozen):
    """Everything that ``up`` does, in a form that can be shown, compared, stored and sent."""

    version: Literal[1] = 1
    name: str
    seed: int = 0
    description: str = ""
    nodes: tuple[Node, ...] = ()
    links: tuple[Link, ...] = ()
    sections: dict[str, dict[str, Any]] = {}
    """What each subsystem needs at run time, by subsystem name; plain JSON."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but without what has been looked up in the plan that is copied: it may be otherwise now."""
        copied = super().model_copy(update=update, deep=deep)
        for name, attribute in vars(Plan).items():
            if isinstance(attribute, cached_property):
                copied.__dict__.pop(name, None)
        return copied

    @cached_property
    def _nodes_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def _links_by_node(self) -> dict[str, list[Link]]:
        links: dict[str, list[Link]] = {node.name: [] for node in self.nodes}
        for link in self.links:
            links[link.a.node].append(link)
            links[link.b.node].append(link)
        return links

    def node(self, name: str) -> Node:
        """The node called ``name``; KeyError if there is none."""
        return self._nodes_by_name[name]

    def links_of(self, node: str) -> list[Link]:
        """The links that touch ``node``, in the plan's order."""
        return self._links_by_node[node]

    def address(self, node: str, interface: str = "") -> Address:
        """The first address of ``node``, or of one of its interfaces; KeyError if there is none."""
        for link in self.links_of(node):
            end = link.end(node)
            if end.addresses and interface in ("", end.interface):
                return end.addresses[0].ip
        raise KeyError(f"{node} has no address")

    def digest(self) -> str:
        """SHA-256 of the plan's canonical JSON, hexadecimal: equal plans, equal digest."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
