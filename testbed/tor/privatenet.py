"""The private Tor network that the testbed makes itself: one node an authority, relay, exit and client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from testbed.errors import Path, Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.progress import Progress
from testbed.tor.protocol.timeperiod import MAX_INTERVAL, ROUNDS
from testbed.tor.spec import TorSpec
from testbed.tor.torrc import COUNT_PRIVATE, FIXED_OPTIONS, RATES, option_problem

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.tor.network import Network, TorNetwork


def tor_nodes(spec: TorSpec) -> Iterator[tuple[str, str]]:
    """(name, role) of every node of the network, in the order of the plan."""
    for role, prefix, count in (
        ("authority", "auth", spec.authorities),
        ("relay", "relay", spec.relays),
        ("exit", "exit", spec.exits),
        ("client", "client", spec.clients),
    ):
        for number in range(1, count + 1):
            yield f"{prefix}{number}", role


class TestbedEngine:
    """``engine: testbed``."""

    joinable = True

    def check(self, spec: TorSpec, topology: Topology) -> Iterable[Problem]:
        """A network needs three relays besides clients before it can build a circuit."""
        if spec.network is not None:
            yield Problem(
                ("tor", "network"), "only chutney has networks with names", "add `engine: chutney`", at_key=True
            )
        routers = spec.authorities + spec.relays + spec.exits
        if routers < 4:
            yield Problem(
                ("tor",),
                f"a network of {routers} relays (authorities, relays and exits together) cannot carry an onion service",
                "set `relays` so that there are at least 4 in all",
            )
        if ":" in topology.defaults.pool:
            yield Problem(
                ("defaults", "pool"),
                "a private Tor network needs IPv4: no tor relays without it",
                "use an IPv4 prefix such as 10.0.0.0/8",
            )
        longest = ROUNDS // 2 * MAX_INTERVAL
        if spec.lifetime > longest * 10**6:
            yield Problem(
                ("tor", "lifetime"),
                "longer than half a time period of onion services can be made",
                f"at most {longest // 3600}h, and less at most times of the day",
            )
        yield from _torrc_problems(spec)

    def expand(self, spec: TorSpec, build: PlanBuilder) -> None:
        """Each node on its own link."""
        places: list[tuple[str, Path]] = [(spec.attach or build.core(), ("tor", "attach") if spec.attach else ("tor",))]
        of_clients = [(router, ("tor", "clients_at", index)) for index, router in enumerate(spec.clients_at)] or places
        clients = 0
        for name, role in tor_nodes(spec):
            build.node(name, ("tor",), runtime="process", subsystem="tor", role=role)
            router, path = places[0]
            if role == "client":
                router, path = of_clients[clients % len(of_clients)]
                clients += 1
            build.attach(name, router, path, spec.link)

    def lacks(self, spec: TorSpec, plan: Plan) -> Iterable[tuple[str, str]]:
        """Nothing but the program tor, which the subsystem names."""
        return ()

    def prepare(self, lab: Lab, progress: Progress) -> Network:
        """Write the files of a warm start."""
        from testbed.tor.network import TorNetwork

        network = TorNetwork(lab)
        network.prepare(progress)
        return network

    def start(self, lab: Lab, progress: Progress) -> Network:
        """Start the network; see ``bringup``."""
        network: TorNetwork = lab.subsystem("tor")
        network.begin()
        return network

    def attach(self, lab: Lab) -> Network:
        """The network of a lab that is up already."""
        from testbed.tor.network import TorNetwork

        return TorNetwork(lab)


def _torrc_problems(spec: TorSpec) -> Iterator[Problem]:
    given = {option.lower(): values for option, values in spec.torrc_options.items()}
    counted = given.get(COUNT_PRIVATE.lower()) == ("1",)
    for option, values in spec.torrc_options.items():
        path = ("tor", "torrc", option)
        if option.lower() in FIXED_OPTIONS:
            yield Problem(path, f"{option} is set by the testbed itself", "remove it", at_key=True)
        for value in values:
            reason = option_problem(option, value)
            if reason:
                yield Problem(path, f"not a torrc option: {reason}", "write it as `Option: value`, on one line")
        if option.lower() in RATES and not counted:
            yield Problem(
                path,
                f"{option} has no effect between the addresses of a lab",
                f"limit the link instead, as in `link: {{rate: 8mbit}}`, or add `{COUNT_PRIVATE}: '1'`; relays then"
                " weigh as much in the consensus as they have carried by the first vote",
                at_key=True,
            )
