"""An edge with every address decided: pure, from the section alone. What cannot be becomes Problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import combinations

from testbed.edge.plan import names
from testbed.edge.spec import EdgeSpec, NetworkSpec, UplinkSpec
from testbed.plan.types import Impairment

Pair = frozenset[str]
PublicAddress = tuple[IPv4Address, int]

LEAST_RTT_US, MOST_RTT_US = 200_000, 500_000
"""Round trips between networks as published; pairs without a delay are spread evenly over them."""
MARK = 0x64
"""Of packets that the education network's border router hands to the inner router; also its routing table."""


@dataclass(frozen=True, slots=True)
class Client:
    """A user."""

    node: str
    network: str
    resolver: str
    """Network whose resolver it asks."""
    delay_us: int
    own: IPv4Interface
    router: IPv4Interface


@dataclass(frozen=True, slots=True)
class Network:
    """A network with its users, its router and the campus' border router at it."""

    name: str
    number: int
    """Counted from 1; the education network is the last. The mark of what came in by its border."""
    prefixes: tuple[IPv4Network, ...]
    rate_bps: int | None
    delay_us: int
    clients: tuple[Client, ...]
    resolver_own: IPv4Interface
    resolver_router: IPv4Interface
    uplink: UplinkSpec
    uplink_router: IPv4Interface
    uplink_border: IPv4Interface
    publics: tuple[IPv4Address, ...]
    """Public addresses of the campus in this network, on the border router."""
    listener: IPv4Interface
    """The redirector's address for users of this network, with the /31 that it may share with the inner router; of the
    education network its border router's address on the link to the inner router."""
    educational: bool = False

    @property
    def border(self) -> str:
        """The campus' border router here."""
        return names.border(self.name)

    @property
    def resolver(self) -> str:
        """The node of its resolver."""
        return names.resolver(self.name)

    @property
    def table(self) -> int:
        """Routing table by which the campus answers what came in here."""
        return 100 + self.number

    @property
    def inner_end(self) -> IPv4Interface:
        """The inner router's address on the /31 of ``listener``."""
        return IPv4Interface((int(self.listener.ip) - 1, 31))


@dataclass(frozen=True, slots=True)
class Site:
    """A web site."""

    host: str
    server: str
    address: IPv4Address
    port: int
    public: Mapping[str, PublicAddress]
    """By provider."""
    https: Mapping[str, str]
    """By provider: the host name to redirect to."""


@dataclass(frozen=True, slots=True)
class World:
    """All of an edge."""

    spec: EdgeSpec
    isps: tuple[Network, ...]
    education: Network
    sites: tuple[Site, ...]
    campus: IPv4Network
    paths: Mapping[Pair, Impairment]
    """Between two networks, one direction."""
    by_name: Mapping[str, Network]

    @property
    def name_server(self) -> IPv4Address:
        """The address of the authority for the sites' names: the last of the campus' prefix."""
        return name_server(self.campus)

    @property
    def networks(self) -> tuple[Network, ...]:
        """The providers and the education network."""
        return (*self.isps, self.education)

    @property
    def clients(self) -> tuple[Client, ...]:
        """All users."""
        return tuple(client for network in self.networks for client in network.clients)

    def client(self, node: str) -> Client:
        """The user called ``node``; KeyError if there is none."""
        for client in self.clients:
            if client.node == node:
                return client
        raise KeyError(node)

    def site(self, host: str) -> Site:
        """The site ``host``; KeyError if there is none."""
        for site in self.sites:
            if site.host == host:
                return site
        raise KeyError(host)

    @property
    def servers(self) -> tuple[str, ...]:
        """The web servers' nodes."""
        return tuple(self.spec.campus.servers)

    @property
    def ports(self) -> tuple[int, ...]:
        """TCP ports of the sites at their own addresses, each once."""
        return tuple(dict.fromkeys(site.port for site in self.sites))

    def delay_us(self, a: str, b: str) -> int:
        """One way between two networks."""
        return 0 if a == b else self.paths[frozenset((a, b))].delay_us

    def between(self) -> Iterator[tuple[Network, Network, Impairment]]:
        """Every pair of networks and what lies between them."""
        for a, b in combinations(self.networks, 2):
            yield a, b, self.paths[frozenset((a.name, b.name))]


def name_server(campus: IPv4Network) -> IPv4Address:
    """The last host address of the campus' prefix."""
    return IPv4Address(int(campus.broadcast_address) - 1)


def paths_of(spec: EdgeSpec) -> dict[Pair, Impairment]:
    """What lies between each two networks. Names that do not exist are left out."""
    ordered = [spec.education.name, *spec.isps]
    pairs = [frozenset(pair) for pair in combinations(ordered, 2)]
    given = {frozenset(pair.between): pair for pair in spec.exchange.pairs}
    found = {}
    for number, pair in enumerate(pairs):
        spread = LEAST_RTT_US + (MOST_RTT_US - LEAST_RTT_US) * number // max(1, len(pairs) - 1)
        layers = [spec.exchange, given.get(pair)]
        delay, loss, rate = spread // 2, 0.0, None
        for layer in layers:
            if layer is not None:
                delay = layer.delay if layer.delay is not None else delay
                loss = layer.loss if layer.loss is not None else loss
                rate = layer.rate if layer.rate is not None else rate
        found[pair] = Impairment(delay_us=delay, loss=loss, rate_bps=rate)
    return found


def network_specs(spec: EdgeSpec) -> dict[str, tuple[NetworkSpec, tuple[str, ...]]]:
    """Every network by name with where it stands in the topology; the education network is the last."""
    found: dict[str, tuple[NetworkSpec, tuple[str, ...]]] = {
        name: (isp, ("edge", "isps", name)) for name, isp in spec.isps.items()
    }
    found.setdefault(spec.education.name, (spec.education, ("edge", "education")))
    return found
