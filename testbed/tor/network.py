"""The handle of a private Tor network that is up, whoever made it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from testbed.errors import TestbedError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.measure.fetch import Target
from testbed.progress import Progress, Silent
from testbed.tor.bringup.bringup import BringUp
from testbed.tor.bringup.firstvote import Timing
from testbed.tor.control import Control, ControlError
from testbed.tor.directory import Directory, read_directory
from testbed.tor.node import TorNode, make_node, open_control
from testbed.tor.spec import TorSpec
from testbed.tor.torrc import Paths

FORGET_TIMEOUT = 25.0
"""Seconds. tor obeys NEWNYM at most once in ten seconds and puts off what comes in between."""
_TICK = 0.1


class Network:
    """``lab.subsystem("tor")``. Keeps no connection open; several may exist for one lab, in several processes."""

    warm = False
    """Whether this handle has brought the network up with what was kept of an earlier one."""

    def __init__(self, lab: Lab, nodes: Iterable[TorNode]) -> None:
        self.lab = lab
        self.spec = TorSpec.model_validate(lab.plan.sections["tor"])
        self.nodes: dict[str, TorNode] = {node.name: node for node in nodes}

    def await_ready(self) -> None:
        """Wait until the network is up, where the handle is of one that has only been started."""

    def targets(self) -> dict[str, Target]:
        """Files that onion services which belong to the network serve, by the node; see also section ``onions``."""
        return {}

    @property
    def authorities(self) -> list[str]:
        """Names of the directory authorities; likewise the next two."""
        return self._named("authority")

    @property
    def relays(self) -> list[str]:
        """Relays and exits."""
        return self._named("relay", "exit")

    @property
    def clients(self) -> list[str]:
        """Onion clients."""
        return self._named("client")

    def socks_path(self, client: str) -> Path:
        """The unix socket of a client's SOCKS port; it can be used from the host."""
        return self._paths(client).socks

    def control_path(self, node: str) -> Path:
        """The unix socket of a node's control port."""
        return self._paths(node).control

    def control(self, node: str) -> Control:
        """A new control connection to a node; TestbedError if its tor does not listen."""
        return open_control(node, self.control_path(node))

    def directory(self) -> Directory:
        """The documents that the network goes by now, from the first authority that answers."""
        failure: TestbedError | None = None
        certificates = b"".join(
            (self._paths(name).data / "keys" / "authority_certificate").read_bytes() for name in self.authorities
        )
        for name in self.authorities:
            try:
                with self.control(name) as control:
                    return read_directory(control, certificates)
            except TestbedError as error:
                failure = error
        raise TestbedError(f"no authority has a consensus: {failure}", where="tor")

    def authority_lines(self) -> list[str]:
        """Values of DirAuthority for a further tor that shall join the network."""
        lines = self._paths(self.authorities[0]).torrc.read_text().splitlines()
        return [line.removeprefix("DirAuthority ") for line in lines if line.startswith("DirAuthority ")]

    def forget_descriptors(self, addresses: list[str]) -> None:
        """Make every client forget the descriptors of these onion services, so that it fetches new ones.

        Only clients that have one are sent NEWNYM. Returns when none has any; WaitTimeout names those that do.
        """
        labels = [address.removesuffix(".onion") for address in addresses]
        holders = [name for name in self.clients if self._holds(name, labels)]
        for name in holders:
            with self.control(name) as control:
                control.signal("NEWNYM")
        deadline = time.monotonic() + FORGET_TIMEOUT
        while holders := [name for name in holders if self._holds(name, labels)]:
            if time.monotonic() > deadline:
                seen = f"{', '.join(holders)} still have one"
                raise WaitTimeout("clients to forget their cached descriptors", FORGET_TIMEOUT, seen, where="tor")
            time.sleep(_TICK)

    def _holds(self, client: str, labels: list[str]) -> bool:
        with self.control(client) as control:
            for label in labels:
                try:
                    control.getinfo(f"hs/client/desc/id/{label}")
                except ControlError:
                    continue
                return True
        return False

    def _named(self, *roles: str) -> list[str]:
        return [name for name, node in self.nodes.items() if node.role in roles]

    def _paths(self, node: str) -> Paths:
        try:
            return self.nodes[node].paths
        except KeyError:
            raise TestbedError(f"{node!r} is no node of the Tor network", where="tor") from None


class TorNetwork(Network):
    """The network that the testbed makes itself."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab, (make_node(lab, node.name) for node in lab.plan.nodes if node.subsystem == "tor"))
        self._bringing: BringUp | None = None

    @classmethod
    def start(
        cls, lab: Lab, progress: Progress | None = None, *, timing: Timing | None = None, vote_at: int | None = None
    ) -> TorNetwork:
        """Bring the network of a lab up, see ``bringup``; TestbedError says what did not work."""
        network = cls(lab)
        network.prepare(progress, timing=timing, vote_at=vote_at)
        network.begin()
        network.await_ready()
        return network

    def prepare(
        self, progress: Progress | None = None, *, timing: Timing | None = None, vote_at: int | None = None
    ) -> None:
        """What can be done before the nodes have links; ``begin`` has to follow."""
        self._bringing = BringUp(
            self.lab, self.spec, progress or Silent(), timing=timing, vote_at=vote_at, warm=self.lab.record.warm
        )
        self._bringing.prepare()

    def begin(self) -> None:
        """Start the network; a cold one is up then, a warm one only after ``await_ready``."""
        assert self._bringing is not None
        self._bringing.begin()

    def await_ready(self) -> None:
        """Wait until all relays know the network and all clients have a circuit."""
        if self._bringing is not None:
            self._bringing.finish()
            self.warm = self._bringing.warm
            self._bringing = None

    def directory(self) -> Directory:
        """As of every network; of one that is not up yet what its clients have been started with."""
        return super().directory() if self._bringing is None else self._bringing.directory
