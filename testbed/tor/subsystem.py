"""Expansion of ``tor`` and ``onions`` into nodes and links. Pure; what runs is imported when a lab starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.progress import Progress
from testbed.subsystem import ProgramNeed
from testbed.tor import strategies
from testbed.tor.spec import MAX_INSTANCES, OnionSpec, OnionsSpec, TorSpec
from testbed.tor.timeperiod import MAX_INTERVAL, ROUNDS
from testbed.tor.torrc import COUNT_PRIVATE, FIXED_OPTIONS, RATES, option_problem

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


TOR = ProgramNeed(
    "tor",
    "tor",
    least="0.4.8",
    remedy="add your distribution's backports or the Tor Project's own package repository, then `apt-get install tor`",
)
NGINX = ProgramNeed("nginx", "nginx-light")


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


def instance_names(service: str, spec: OnionSpec) -> list[str]:
    """Node names of a service's instances."""
    return [f"{service}{number}" for number in range(1, spec.instances + 1)]


def _option_problems(option: str, values: tuple[str, ...]) -> Iterable[Problem]:
    path = ("tor", "torrc", option)
    if option.lower() in FIXED_OPTIONS:
        yield Problem(path, f"{option} is set by the testbed itself", "remove it", at_key=True)
    for value in values:
        reason = option_problem(option, value)
        if reason:
            yield Problem(path, f"not a torrc option: {reason}", "write it as `Option: value`, on one line")


class TorSubsystem:
    """A private Tor network."""

    name = "tor"
    after: tuple[str, ...] = ()
    programs = (TOR,)
    spec = TorSpec

    def check(self, spec: TorSpec, topology: Topology) -> Iterable[Problem]:
        """A network needs three relays besides clients before it can build a circuit."""
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
        given = {option.lower(): values for option, values in spec.torrc_options.items()}
        counted = given.get(COUNT_PRIVATE.lower()) == ("1",)
        for option, values in spec.torrc_options.items():
            yield from _option_problems(option, values)
            if option.lower() in RATES and not counted:
                yield Problem(
                    ("tor", "torrc", option),
                    f"{option} has no effect between the addresses of a lab",
                    f"limit the link instead, as in `link: {{rate: 8mbit}}`, or add `{COUNT_PRIVATE}: '1'`; relays then"
                    " weigh as much in the consensus as they have carried by the first vote",
                    at_key=True,
                )

    def expand(self, spec: TorSpec, topology: Topology, build: PlanBuilder) -> None:
        """One node an authority, relay, exit and client, each on its own link."""
        router = spec.attach or build.core()
        for name, role in tor_nodes(spec):
            build.node(name, ("tor",), runtime="process", subsystem="tor", role=role)
            build.attach(name, router, ("tor", "attach") if spec.attach else ("tor",), spec.link)
        build.section("tor", spec.model_dump(mode="json"))

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Bring the network up; see ``bringup``."""
        from testbed.tor.network import TorNetwork

        return TorNetwork.start(lab, progress)

    def attach(self, lab: Lab) -> Any:
        """The network of a lab that is up already."""
        from testbed.tor.network import TorNetwork

        return TorNetwork(lab)


class OnionsSubsystem:
    """Onion services with same-key instances on the network of section ``tor``."""

    name = "onions"
    after: tuple[str, ...] = ("tor",)
    programs = (TOR, NGINX)
    spec = OnionsSpec

    def check(self, spec: OnionsSpec, topology: Topology) -> Iterable[Problem]:
        """Onion services need a Tor network and somebody who fetches."""
        if "tor" not in topology.sections:
            yield Problem(("onions",), "onion services need a Tor network", "add a section `tor`", at_key=True)
        if not spec.root:
            yield Problem(("onions",), "no onion service is named", "name one, such as `shop: {instances: 3}`")
        tor = topology.sections.get("tor")
        hsdirs = tor.hsdirs if isinstance(tor, TorSpec) else MAX_INSTANCES
        for service, onion in spec.root.items():
            strategy = strategies.STRATEGIES[onion.publish]
            what, remedy = strategies.number_problem(strategy, onion.instances, hsdirs)
            if what:
                yield Problem(("onions", service, "instances"), what, remedy)
            if onion.late is not None and onion.late > onion.instances:
                what = f"there is no instance {onion.late} that could be late"
                yield Problem(("onions", service, "late"), what, f"write a number from 1 to {onion.instances}")

    def expand(self, spec: OnionsSpec, topology: Topology, build: PlanBuilder) -> None:
        """One node an instance."""
        for service, onion in spec.root.items():
            path = ("onions", service)
            router = onion.attach or build.core()
            for name in instance_names(service, onion):
                build.node(name, path, runtime=onion.runtime, image=onion.image, subsystem="onions", role=service)
                build.attach(name, router, (*path, "attach") if onion.attach else path, onion.link)
        build.section("onions", spec.model_dump(mode="json"))

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Start every instance as its service's ``publish`` says."""
        from testbed.tor.onions import OnionServices

        services = OnionServices(lab)
        services.start_all(progress)
        return services

    def attach(self, lab: Lab) -> Any:
        """The services of a lab that is up already, started or not."""
        from testbed.tor.onions import OnionServices

        return OnionServices(lab)


tor = TorSubsystem()
onions = OnionsSubsystem()
