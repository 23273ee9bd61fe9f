"""Who makes the private Tor network of a lab: the seam between the section ``tor`` and the testbed or chutney."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from testbed.errors import Problem
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.progress import Progress
from testbed.tor.spec import TorSpec

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.tor.network import Network


class Engine(Protocol):
    """One way to make a network. As with subsystems, ``check`` and ``expand`` are pure, and importing is cheap."""

    joinable: bool
    """Whether the instances of section ``onions`` can join the network."""

    def check(self, spec: TorSpec, topology: Topology) -> Iterable[Problem]:
        """What the model alone cannot see. Paths start at the root of the topology."""

    def expand(self, spec: TorSpec, build: PlanBuilder) -> None:
        """Add nodes and links."""

    def lacks(self, spec: TorSpec, plan: Plan) -> Iterable[tuple[str, str]]:
        """What this machine lacks beside programs, with the remedy."""

    def prepare(self, lab: Lab, progress: Progress) -> Network:
        """What can be done before there are namespaces and links; see ``Subsystem``."""

    def start(self, lab: Lab, progress: Progress) -> Network:
        """Start the network, which is up after its ``await_ready``; TestbedError says what did not work."""

    def attach(self, lab: Lab) -> Network:
        """The network of a lab that is up already."""


def engine_of(spec: TorSpec) -> Engine:
    """The engine that a section names."""
    from testbed.tor.chutney.engine import ChutneyEngine
    from testbed.tor.privatenet import TestbedEngine

    engines: dict[str, Engine] = {"testbed": TestbedEngine(), "chutney": ChutneyEngine()}
    return engines[spec.engine]
