"""Expansion of ``tor`` and ``onions`` into nodes and links. Pure; what runs is imported when a lab starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.progress import Progress
from testbed.subsystem import ProgramNeed
from testbed.tor.engine import Engine, engine_of
from testbed.tor.onion import strategies
from testbed.tor.spec import MAX_INSTANCES, OnionSpec, OnionsSpec, TorSpec

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.tor.network import Network
    from testbed.tor.onion.services import OnionServices

TOR = ProgramNeed(
    "tor",
    "tor",
    least="0.4.8",
    remedy="add your distribution's backports or the Tor Project's own package repository, then `apt-get install tor`",
)
TOR_GENCERT = ProgramNeed("tor-gencert", "tor")
NGINX = ProgramNeed("nginx", "nginx-light")


def instance_names(service: str, spec: OnionSpec) -> list[str]:
    """Node names of a service's instances."""
    return [f"{service}{number}" for number in range(1, spec.instances + 1)]


class TorSubsystem:
    """A private Tor network; who makes it, the key ``engine`` says."""

    name = "tor"
    after: tuple[str, ...] = ()
    programs = (TOR,)
    spec = TorSpec

    def check(self, spec: TorSpec, topology: Topology) -> Iterable[Problem]:
        """What the engine asks for."""
        return engine_of(spec).check(spec, topology)

    def expand(self, spec: TorSpec, topology: Topology, build: PlanBuilder) -> None:
        """The engine's nodes and links."""
        engine_of(spec).expand(spec, build)
        build.section("tor", spec.model_dump(mode="json"))

    def lacks(self, plan: Plan) -> Iterable[tuple[str, str]]:
        """What this machine lacks for the engine."""
        spec = TorSpec.model_validate(plan.sections["tor"])
        return engine_of(spec).lacks(spec, plan)

    def prepare(self, lab: Lab, progress: Progress) -> Any:
        """What the engine can do before there are links."""
        return self._engine(lab).prepare(lab, progress)

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Start the network, up to the point from which onion services can be started too."""
        return self._engine(lab).start(lab, progress)

    def await_ready(self, network: Network) -> None:
        """Wait until the network is up."""
        network.await_ready()

    def attach(self, lab: Lab) -> Any:
        """The network of a lab that is up already."""
        return self._engine(lab).attach(lab)

    def _engine(self, lab: Lab) -> Engine:
        return engine_of(TorSpec.model_validate(lab.plan.sections["tor"]))


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
        tor = topology.sections.get("tor")
        if isinstance(tor, TorSpec) and not engine_of(tor).joinable:
            yield Problem(
                ("onions",),
                f"a network of {tor.engine} has its own onion services",
                "remove the section, or leave out `engine` in section `tor`",
                at_key=True,
            )
            return
        if not spec.root:
            yield Problem(("onions",), "no onion service is named", "name one, such as `shop: {instances: 3}`")
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

    def prepare(self, lab: Lab, progress: Progress) -> Any:
        """Start web servers."""
        from testbed.tor.onion.services import OnionServices

        services = OnionServices(lab)
        services.serve()
        return services

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Start the first instances of each service, while the network comes up."""
        services = lab.subsystem(self.name)
        services.begin_all(lab.subsystem("tor").directory(), progress)
        return services

    def await_ready(self, services: OnionServices) -> None:
        """Start the other instances as each service's ``publish`` says, and wait until all have published."""
        services.finish_all()

    def attach(self, lab: Lab) -> Any:
        """The services of a lab that is up already, started or not."""
        from testbed.tor.onion.services import OnionServices

        return OnionServices(lab)


tor = TorSubsystem()
onions = OnionsSubsystem()
