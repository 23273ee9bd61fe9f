"""``engine: chutney``: what a topology may say, what the machine must have. What runs is imported when a lab starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from testbed.errors import Problem, TestbedError
from testbed.model.topology import Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Plan
from testbed.progress import Progress
from testbed.tor.spec import TorSpec

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.tor.network import Network

NODE = "chutney"
"""The node of the lab that has all of chutney's tors; they listen on its loopback address alone."""
LOOPBACK_IPV6 = ("net/ipv6/conf/lo/disable_ipv6", "0")
"""Newer chutneys have each tor listen on ::1, too, and some networks of both kinds are for IPv6."""
_KEYS = frozenset(("engine", "network", "attach"))


class ChutneyEngine:
    """Runs the real chutney."""

    joinable = False

    def check(self, spec: TorSpec, topology: Topology) -> Iterable[Problem]:
        """Chutney's network has a name, and everything else about it is chutney's."""
        if spec.network is None:
            remedy = "add one, such as `network: hs-v3`"
            yield Problem(("tor",), "chutney needs the name of one of its networks", remedy)
        for key in TorSpec.model_fields:
            if key in spec.model_fields_set and key not in _KEYS:
                yield Problem(("tor", key), "a network of chutney is what its name says", "remove the key", at_key=True)

    def expand(self, spec: TorSpec, build: PlanBuilder) -> None:
        """One node for all of it."""
        build.node(NODE, ("tor",), runtime="process", subsystem="tor", role="chutney")
        build.attach(NODE, spec.attach or build.core(), ("tor", "attach") if spec.attach else ("tor",))
        build.sysctl(NODE, *LOOPBACK_IPV6)

    def lacks(self, spec: TorSpec, plan: Plan) -> Iterable[tuple[str, str]]:
        """Chutney itself, its network, and the programs that it and its onion services need."""
        from testbed.lab.programs import lack
        from testbed.tor.chutney import cli
        from testbed.tor.subsystem import NGINX, TOR_GENCERT

        for need in (TOR_GENCERT, NGINX):
            found = lack(need)
            if found:
                yield found
        if plan.node(NODE).runtime != "process":
            yield "chutney runs as plain processes only", "leave out --runtime"
        try:
            cli.find().require(spec.network or "")
        except TestbedError as error:
            yield error.what, error.remedy

    def prepare(self, lab: Lab, progress: Progress) -> Network:
        """Nothing: chutney does all at its start."""
        return self.attach(lab)

    def start(self, lab: Lab, progress: Progress) -> Network:
        """Have chutney bring the network up."""
        from testbed.tor.chutney.network import ChutneyNetwork

        return ChutneyNetwork.start(lab, progress)

    def attach(self, lab: Lab) -> Network:
        """The network of a lab that is up already."""
        from testbed.tor.chutney.network import ChutneyNetwork

        return ChutneyNetwork(lab)
