"""Whether the parts of an edge fit together, and the world that they make if so. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import pairwise

from testbed.edge.plan import names
from testbed.edge.plan.findings import Findings
from testbed.edge.plan.publics import Publics
from testbed.edge.plan.world import (
    Client,
    Network,
    Site,
    World,
    name_server,
    paths_of,
)
from testbed.edge.spec import EdgeSpec, IspSpec, SiteSpec
from testbed.errors import Path, Problem
from testbed.plan.addresses import Allocator


def world_of(spec: EdgeSpec) -> tuple[World | None, list[Problem]]:
    """The world that ``spec`` describes, None where something is wrong with it."""
    maker = _Maker(spec)
    world = maker.make()
    return (None if maker.problems else world), maker.problems


class _Maker(Findings):
    """Puts the parts together."""

    def make(self) -> World | None:
        spec = self.spec
        if spec.education.name in spec.isps:
            name = spec.education.name
            self.problem(("edge", "isps", name), f"the education network is called {name!r} too", "rename it", key=True)
        self._prefixes()
        self._resolvers()
        self._pairs()
        campus = self._campus()
        sites = self._sites(campus)
        listeners = self._listeners()
        if self.problems or campus is None:
            return None
        networks = []
        for number, name in enumerate(self.specs, 1):
            network = self._network(number, name, sites, campus, listeners[number - 1])
            if network is not None:
                networks.append(network)
        if self.problems:
            return None
        by_name = {network.name: network for network in networks}
        return World(spec, tuple(networks[:-1]), networks[-1], tuple(sites), campus, paths_of(spec), by_name)

    def _prefixes(self) -> None:
        """Every prefix belongs to one network."""
        claims: list[tuple[int, int, IPv4Network, str, Path]] = []
        for name, (network, path) in self.specs.items():
            found = []
            for index, text in enumerate(network.prefixes):
                at: Path = (*path, "prefixes", index)
                prefix = self.network_of(text, at)
                if prefix is not None:
                    found.append(prefix)
                    claims.append((int(prefix.network_address), int(prefix.broadcast_address), prefix, name, at))
            self.prefixes[name] = tuple(found)
        claims.sort(key=lambda claim: claim[:2])
        for before, after in pairwise(claims):
            if after[0] <= before[1]:
                owners = f"{after[3]!r}" if after[3] != before[3] else "the same network"
                message = f"{before[2]} of {before[3]!r} overlaps with {after[2]} of {owners}"
                first, last = sorted((before, after), key=lambda claim: self._order(claim[3]))
                self.problem(last[4], message, "an address belongs to one network: change one", other=first[4])
        for name, (network, path) in self.specs.items():
            if not network.clients:
                at_key = not isinstance(network, IspSpec)
                self.problem((*path, "clients"), f"{name!r} has no client", "write at least 1", key=at_key)

    def _order(self, network: str) -> int:
        """Where a network stands in the topology; one that is not written there comes first."""
        if network == self.spec.education.name and "education" not in self.spec.model_fields_set:
            return -1
        return list(self.specs).index(network)

    def _resolvers(self) -> None:
        known = list(self.specs)
        for network, path in self.specs.values():
            if network.resolver is not None:
                self.known_name(network.resolver, known, (*path, "resolver"))
            for index, client in enumerate(network.clients):
                if client.resolver is not None:
                    self.known_name(client.resolver, known, (*path, "clients", index, "resolver"))

    def _pairs(self) -> None:
        seen: dict[frozenset[str], Path] = {}
        for index, pair in enumerate(self.spec.exchange.pairs):
            path = ("edge", "exchange", "pairs", index, "between")
            known = [self.known_name(name, list(self.specs), (*path, end)) for end, name in enumerate(pair.between)]
            if not all(known):
                continue
            both = frozenset(pair.between)
            if len(both) == 1:
                self.problem((*path, 1), f"both networks are {pair.between[0]!r}", "name two")
            elif both in seen:
                message = f"{pair.between[0]!r} and {pair.between[1]!r} are a pair already"
                self.problem(path, message, "remove one of the two", other=seen[both])
            seen.setdefault(both, path)

    def _campus(self) -> IPv4Network | None:
        path = ("edge", "campus", "prefix")
        prefix = self.network_of(self.spec.campus.prefix, path)
        inside = self.prefixes[self.spec.education.name] if self.spec.education.name not in self.spec.isps else ()
        if prefix is None or not inside:
            return None
        if not any(prefix.subnet_of(wide) for wide in inside):
            given = "prefix" in self.spec.campus.model_fields_set
            message = f"the campus' {prefix} is outside of {self.spec.education.name!r} ({inside[0]})"
            self.problem(path if given else ("edge",), message, f"set `campus: prefix:` to a part of {inside[0]}")
            return None
        return prefix

    def _sites(self, campus: IPv4Network | None) -> list[Site]:
        publics = Publics(self)
        for host, site in self.spec.sites.items():
            publics.take(host, site or SiteSpec())
        server = name_server(campus) if campus else None
        free = (one for one in campus.hosts() if one != server) if campus else iter(())
        taken: dict[IPv4Address, Path] = {}
        for host, site in self.spec.sites.items():
            if site is not None and site.address is not None:
                self._own_address(host, site.address, campus, taken)
        found = []
        for host, written in self.spec.sites.items():
            site = written or SiteSpec()
            servers = list(self.spec.campus.servers)
            if site.server is not None:
                self.known_name(site.server, servers, ("edge", "sites", host, "server"), "web server")
            for isp in site.https:
                self.known_name(isp, list(self.spec.isps), ("edge", "sites", host, "https", isp), "provider")
            if site.address is not None:
                address = IPv4Address(site.address) if not self.problems else None
            else:
                address = next((one for one in free if one not in taken), None)
                if address is None and campus is not None:
                    at = ("edge", "campus", "prefix")
                    where = at if "prefix" in self.spec.campus.model_fields_set else ("edge", "sites")
                    message = f"{campus} has no address left for site {host!r}"
                    if not any(problem.message.startswith(f"{campus} has") for problem in self.problems):
                        self.problem(where, message, "set a larger `campus: prefix:`")
            if address is not None:
                public = publics.of(host)
                found.append(
                    Site(host, site.server or servers[0], address, site.port, public, dict(site.https)),
                )
        return found

    def _own_address(self, host: str, text: str, campus: IPv4Network | None, taken: dict[IPv4Address, Path]) -> None:
        path = ("edge", "sites", host, "address")
        address = self.address_of(text, path)
        if address is None or campus is None:
            return
        if address == name_server(campus):
            self.problem(path, f"{address} is the address of the campus' name server", "write another one")
        if address not in campus:
            self.problem(path, f"{address} is outside of the campus' {campus}", f"write one such as {campus[1]}")
        site = self.spec.sites[host]
        same = [
            other for other in self.spec.sites if other != host and (o := self.spec.sites[other]) and site
            and o.address == text and o.port == site.port
        ]  # fmt: skip
        if address in taken and same:
            self.problem(path, f"{address} is the address of site {same[0]!r} already", "give it another one or port",
                         other=taken[address])  # fmt: skip
        taken.setdefault(address, path)

    def _listeners(self) -> list[IPv4Interface]:
        path = ("edge", "redirect", "addresses")
        prefix = self.network_of(self.spec.redirect.addresses, path)
        if prefix is None:
            return []
        needed = 2 * len(self.specs)
        if prefix.num_addresses < needed:
            self.problem(path, f"{prefix} is too small for {len(self.specs)} networks", f"it needs {needed} addresses")
            return []
        for name, prefixes in self.prefixes.items():
            for other in prefixes:
                if prefix.overlaps(other):
                    self.problem(path, f"{prefix} overlaps with {other} of {name!r}", "write another private prefix")
        first = int(prefix.network_address)
        return [IPv4Interface((first + 2 * number + 1, 31)) for number in range(len(self.specs))]

    def _network(
        self, number: int, name: str, sites: list[Site], campus: IPv4Network, listener: IPv4Interface
    ) -> Network | None:
        spec, path = self.specs[name]
        assert isinstance(spec, IspSpec) or spec is self.spec.education
        home = self.prefixes[name][0]
        space = Allocator(home)
        educational = spec is self.spec.education
        if educational and campus.subnet_of(home):
            space.reserve(campus, "the campus")
        publics = tuple(dict.fromkeys(site.public[name][0] for site in sites if name in site.public))
        for address in publics:
            space.reserve(IPv4Network(address), "a public address")

        def cable() -> tuple[IPv4Interface, IPv4Interface] | None:
            """The router's end and the other end."""
            subnet = space.allocate(31)
            if subnet is None:
                return None
            return IPv4Interface((int(subnet[0]), 31)), IPv4Interface((int(subnet[1]), 31))

        space.allocate(31)  # no node is called 61.128.0.0
        cables = [cable() for _ in range(2 + len(spec.clients))]
        if None in cables:
            message = f"{home} is too small for {name!r}: it needs {2 * len(cables) + 2} addresses besides public ones"
            self.problem((*path, "prefixes", 0), message, "write a larger prefix")
            return None
        sound = [pair for pair in cables if pair is not None]
        clients = tuple(
            Client(
                names.client(name, index),
                name,
                client.resolver or spec.resolver or name,
                client.delay if client.delay is not None else spec.delay,
                own,
                router,
            )
            for index, (client, (router, own)) in enumerate(zip(spec.clients, sound[2:], strict=True), 1)
        )
        uplink = spec.uplink if isinstance(spec, IspSpec) else self.spec.education.uplink
        return Network(
            name=name, number=number, prefixes=self.prefixes[name], rate_bps=spec.rate, delay_us=spec.delay,
            clients=clients, resolver_own=sound[1][1], resolver_router=sound[1][0], uplink=uplink,
            uplink_router=sound[0][0], uplink_border=sound[0][1], publics=publics, listener=listener,
            educational=educational,
        )  # fmt: skip
