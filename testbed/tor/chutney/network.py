"""Chutney at work in a lab: verb after verb, with its progress told, and the handle of what it has made."""

from __future__ import annotations

import time
from collections.abc import Sequence

from testbed.errors import ApplyError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.measure.content import content_digest
from testbed.measure.fetch import Target
from testbed.plan.types import Service
from testbed.progress import Progress
from testbed.tor.chutney import cli
from testbed.tor.chutney.engine import NODE
from testbed.tor.chutney.nodes import DATA, add_socks, bootstrapped, parse, read_nodes, service_port
from testbed.tor.control import Control
from testbed.tor.distribute.endpoint import connect
from testbed.tor.network import Network
from testbed.tor.node import TorNode
from testbed.tor.onion import webserver
from testbed.tor.torrc import Paths

SIZE = 2**20
"""Bytes of the file that chutney's onion services serve."""
VERB_LIMIT = 120.0
"""Seconds for a verb, beside what chutney itself waits for its network."""
_TICK = 0.2


class ChutneyNetwork(Network):
    """``lab.subsystem("tor")`` of a lab with ``engine: chutney``. Nodes have chutney's names, such as ``008c``."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, read_nodes(lab.node_folder(NODE) / DATA))

    @classmethod
    def start(cls, lab: Lab, progress: Progress) -> ChutneyNetwork:
        """Have chutney make, start and await the network; TestbedError has chutney's own last words."""
        network = cls(lab)
        network._run(cli.find(), progress)
        return network

    @property
    def onions(self) -> list[str]:
        """Nodes with an onion service."""
        return self._named("onion")

    def control(self, node: str) -> Control:
        """A new control connection to a node, with its cookie; TestbedError if its tor does not listen."""
        return connect(node, str(self.control_path(node)))

    def targets(self) -> dict[str, Target]:
        """What the onion services serve: all the same file."""
        found = {}
        for name in self.onions:
            paths = self.nodes[name].paths
            port, _ = service_port(parse(paths.torrc.read_text()))
            address = (paths.hidden_service / "hostname").read_text().strip()
            seed = self.lab.plan.seed
            found[name] = Target(address, port, "/file", SIZE, content_digest(SIZE, seed))
        return found

    def _run(self, chutney: cli.Chutney, progress: Progress) -> None:
        begun = time.monotonic()
        network = self.spec.network or ""
        chutney.require(network)
        for argv in chutney.begin(network):
            self._verb("init", argv, 1, progress)
        phases = self._phases(chutney, network)
        for phase in range(1, max(phases) + 1):
            for verb in ("configure", "start", "wait_for_bootstrap"):
                if phase <= phases[0 if verb == "configure" else 1]:
                    self._verb(verb, chutney.command(verb, network), phase, progress)
                    if verb == "configure":
                        self._configured()
            self.lab.event("stage", subsystem="tor", stage=f"phase {phase}", seconds=time.monotonic() - begun)

    def _configured(self) -> None:
        self.nodes = {node.name: node for node in read_nodes(self.lab.node_folder(NODE) / DATA)}
        if not self.nodes:
            raise ApplyError("chutney has configured no node", where="tor")
        add_socks(list(self.nodes.values()))
        running = {process.service for process in self.lab.processes() if process.alive()}
        if self.onions and webserver.SERVICE.name not in running:
            places = {service_port(parse(self.nodes[name].paths.torrc.read_text()))[1] for name in self.onions}
            server = TorNode(NODE, "web", "127.0.0.1", Paths(self.lab.node_folder(NODE)))
            webserver.prepare(NODE, server.paths, SIZE, self.lab.plan.seed, sorted(places))
            webserver.start(self.lab, [server])

    def _phases(self, chutney: cli.Chutney, network: str) -> tuple[int, int]:
        """How many phases of configuring and of launching the network has: some nodes wait for others."""
        variables = cli.environment(self.lab.node_folder(NODE) / DATA)
        argv = ["env", "--ignore-environment", *(f"{key}={value}" for key, value in variables.items())]
        done = self.lab.exec(NODE, [*argv, *chutney.command("print_phases", network)], root=False, check=True)
        found = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("CHUTNEY_"))
        try:
            return int(found["CHUTNEY_CONFIG_PHASES"]), int(found["CHUTNEY_LAUNCH_PHASES"])
        except (KeyError, ValueError):
            raise ApplyError(f"chutney does not tell the network's phases: {done.stdout[-300:]}", where="tor") from None

    def _verb(self, verb: str, argv: Sequence[str], phase: int, progress: Progress) -> None:
        """Run a verb to its end; ApplyError with its last words if it fails."""
        variables = cli.environment(self.lab.node_folder(NODE) / DATA, phase)
        limit = VERB_LIMIT + (float(variables["CHUTNEY_START_TIME"]) if verb == "wait_for_bootstrap" else 0)
        failed = f"`chutney {verb}` failed for {self.spec.network}"
        try:
            process = self.lab.spawn(NODE, Service(name=f"chutney-{verb}", argv=tuple(argv), env=variables))
        except ApplyError as error:  # it may also end before it was seen to run
            raise ApplyError(f"{failed}: {error.what}", where="tor") from error
        stage = f"chutney {verb}" + (f", phase {phase}" if phase > 1 else "")
        deadline = time.monotonic() + limit
        while process.alive():
            self._tell(stage, progress)
            if time.monotonic() > deadline:
                raise WaitTimeout(f"`chutney {verb}` to end", limit, f"its last words:\n{process.log_tail(12)}")
            time.sleep(_TICK)
        if process.exit_status():
            raise ApplyError(f"{failed}; its last words:\n{process.log_tail(24)}", where="tor")
        total = len(self.nodes) or 1
        progress.update(stage, total, total)

    def _tell(self, stage: str, progress: Progress) -> None:
        """How far each node is, by its own log; the verb is over only when chutney says so."""
        percents = {node.name: bootstrapped(node) for node in self.nodes.values()}
        late = ", ".join(f"{name} {percent} %" for name, percent in percents.items() if percent < 100)
        done = sum(percent == 100 for percent in percents.values())
        total = len(percents) or 1
        progress.update(stage, min(done, total - 1), total, late[:60] or "chutney waits")
