"""What subsystems give to nodes beside links: routes of any table, rules, addresses, settings, rulesets, files.

Collected by name while a topology is expanded; next hops and interfaces are looked up once every link has addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface, ip_network
from pathlib import PurePosixPath
from typing import Any, Literal

from testbed.model.words import check_path
from testbed.plan.types import MAIN_TABLE, End, File, Interface, Link, Network, Route, Rule, Service


@dataclass(frozen=True, slots=True)
class _RouteWish:
    node: str
    destination: Network
    via: str
    table: int


@dataclass(frozen=True, slots=True)
class _RuleWish:
    node: str
    rule: Rule
    iif_from: str | None


@dataclass(slots=True)
class _Things:
    """What one node gets."""

    loopback: list[Interface] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    nft: list[str] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)


class Policy:
    """The wishes of all subsystems. A wish that cannot be granted is a mistake of the program: ValueError."""

    def __init__(self) -> None:
        self._routes: list[_RouteWish] = []
        self._rules: list[_RuleWish] = []
        self._things: dict[str, _Things] = {}

    def of(self, node: str) -> _Things:
        """The things of a node, which need no looking up."""
        return self._things.setdefault(node, _Things())

    def nodes(self) -> set[str]:
        """Everybody who gets something."""
        return {wish.node for wish in self._routes} | {wish.node for wish in self._rules} | set(self._things)

    def route(self, node: str, destination: Network, via: str, table: int) -> None:
        """A route through a neighbour, ``via``: ``node`` or ``node:interface``, where several links lead to it."""
        for wish in self._routes:
            if (wish.node, wish.destination, wish.table) == (node, destination, table):
                raise ValueError(f"{node} has two routes to {destination} in table {table}")
        self._routes.append(_RouteWish(node, destination, via, table))

    def rule(self, node: str, rule: Rule, iif_from: str | None) -> None:
        """A rule; ``iif_from`` names the neighbour that the packet comes from, as in ``route``."""
        self._rules.append(_RuleWish(node, rule, iif_from))

    def loopback_addresses(self) -> Iterable[tuple[str, Interface]]:
        """(node, address) of each further address on ``lo``."""
        return ((node, address) for node, things in self._things.items() for address in things.loopback)

    def routes_of(self, links: Iterable[Link]) -> dict[str, list[Route]]:
        """The routes by node, next hops found on ``links``."""
        by_node = _by_node(links)
        found: dict[str, list[Route]] = {}
        for wish in self._routes:
            own, peer = _shared(wish.node, wish.via, by_node)
            hops = [a.ip for a in peer.addresses if a.version == wish.destination.version]
            if not hops:
                raise ValueError(f"{wish.node}: {wish.via} has no address for a route to {wish.destination}")
            route = Route(destination=wish.destination, via=hops[0], ifname=own.ifname, table=wish.table)
            found.setdefault(wish.node, []).append(route)
        return found

    def rules_of(self, links: Iterable[Link]) -> dict[str, list[Rule]]:
        """The rules by node, in the order in which the kernel asks them."""
        by_node = _by_node(links)
        found: dict[str, list[Rule]] = {}
        for wish in self._rules:
            rule = wish.rule
            if wish.iif_from is not None:
                rule = rule.model_copy(update={"iif": _shared(wish.node, wish.iif_from, by_node)[0].ifname})
            found.setdefault(wish.node, []).append(rule)
        return {node: sorted(rules, key=lambda rule: rule.priority) for node, rules in found.items()}

    def update(self, node: str, services: Sequence[Service]) -> dict[str, Any]:
        """The fields of the plan's node that need no looking up; ``services`` are those that it has already."""
        things = self.of(node)
        return {
            "loopback": tuple(things.loopback),
            "sysctls": dict(things.sysctls),
            "nft": "\n".join(things.nft),
            "files": tuple(things.files),
            "services": (*services, *things.services),
        }


class PolicyVerbs:
    """What a plan builder can be told about nodes beside links; next hops may be named before their links are."""

    def __init__(self) -> None:
        self._policy = Policy()

    def route(self, node: str, destination: str, via: str, *, table: int = MAIN_TABLE) -> None:
        """Give ``node`` a route (a prefix, or ``default``: all of IPv4) through its neighbour ``via``.

        The next hop is the neighbour's address on the link that they share; ``neighbour:interface`` tells several
        apart. In the main table it replaces a computed route to the same prefix. ValueError for what cannot be.
        """
        network = ip_network("0.0.0.0/0") if destination == "default" else ip_network(destination)
        self._policy.route(node, network, via, table)

    def rule(
        self,
        node: str,
        *,
        priority: int,
        table: int,
        source: str | None = None,
        destination: str | None = None,
        fwmark: int | None = None,
        iif_from: str | None = None,
        family: Literal[4, 6] | None = None,
    ) -> None:
        """Have ``node`` route by ``table`` what matches. ``iif_from``: what comes in from that neighbour.

        The family is that of ``source`` or ``destination``, else IPv4 unless given. ValueError for what cannot be.
        """
        networks = [ip_network(text) for text in (source, destination) if text is not None]
        versions = {network.version for network in networks} | ({family} if family else set())
        if len(versions) > 1:
            raise ValueError(f"rule of {node}: IPv4 and IPv6 in one")
        rule = Rule(
            family=6 if 6 in versions else 4,
            priority=priority,
            source=ip_network(source) if source else None,
            destination=ip_network(destination) if destination else None,
            fwmark=fwmark,
            table=table,
        )
        self._policy.rule(node, rule, iif_from)

    def loopback(self, node: str, address: str) -> None:
        """Give ``node`` one more address on ``lo``. No computed route leads to it; several nodes may have the same."""
        self._policy.of(node).loopback.append(loopback_interface(address))

    def sysctl(self, node: str, key: str, value: str) -> None:
        """Set ``key`` (``net/ipv4/...``) to ``value`` in the node's namespace."""
        self._policy.of(node).sysctls[checked_sysctl(key)] = value

    def nft(self, node: str, text: str) -> None:
        """Load a ruleset in the node's namespace. Several of one node make one transaction, in this order."""
        self._policy.of(node).nft.append(text)

    def file(self, node: str, path: str, text: str) -> None:
        """Put a text file into the node's folder; ``${dir}`` in it becomes that folder."""
        self._policy.of(node).files.append(File(path=check_path(path), text=text))

    def service(self, node: str, service: Service) -> None:
        """Give ``node`` one more program that runs from ``up`` on."""
        self._policy.of(node).services.append(service)


def loopback_interface(text: str) -> Interface:
    """An address for ``lo``: without prefix length, or with that of a single address."""
    interface = ip_interface(text)
    if interface.network.num_addresses != 1:
        raise ValueError(f"{text}: an address on lo has /{interface.max_prefixlen}")
    return interface


def checked_sysctl(key: str) -> str:
    """A setting of a network namespace, as a path below ``/proc/sys``."""
    parts = PurePosixPath(key).parts
    if parts[:1] != ("net",) or ".." in parts or str(PurePosixPath(key)) != key:
        raise ValueError(f"{key!r} is no setting of a network namespace; they begin with net/")
    return key


def _by_node(links: Iterable[Link]) -> dict[str, list[Link]]:
    found: dict[str, list[Link]] = {}
    for link in links:
        for end in (link.a, link.b):
            found.setdefault(end.node, []).append(link)
    return found


def _shared(node: str, neighbour: str, links: dict[str, list[Link]]) -> tuple[End, End]:
    """Own end and far end of the link to a neighbour; ``neighbour:interface`` tells several links apart."""
    name, _, interface = neighbour.partition(":")
    for link in links.get(node, ()):
        peer = link.peer(node)
        if peer.node == name and interface in ("", peer.interface):
            return link.end(node), peer
    raise ValueError(f"{node} has no link to {neighbour}")


def is_main(route: Route) -> bool:
    """Whether a route is in the main table."""
    return route.table == MAIN_TABLE
