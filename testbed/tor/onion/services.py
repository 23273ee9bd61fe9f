"""Onion services with several instances behind one address: start, stop, and who is published where."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.progress import Progress, Silent
from testbed.runtime.base import Process
from testbed.tor.control import ControlError
from testbed.tor.directory import Directory
from testbed.tor.distribute.document import Content, read_descriptor
from testbed.tor.network import TorNetwork
from testbed.tor.node import TorNode, blame, make_node
from testbed.tor.onion import starting, strategies, webserver
from testbed.tor.onion.hsdirmap import HSDirEntry, read_hsdirs
from testbed.tor.onion.owners import Owners
from testbed.tor.onion.publication import Publication
from testbed.tor.onion.reissue import reissue
from testbed.tor.onion.starting import Begin
from testbed.tor.protocol.descriptor import Outer, parse_outer
from testbed.tor.protocol.hsdir import Responsible
from testbed.tor.protocol.keys import Ed25519Key, onion_address, onion_key
from testbed.tor.spec import OnionSpec, OnionsSpec
from testbed.tor.subsystem import instance_names

PATIENCE = 20.0
"""Seconds for which an instance may wait for its network. With three introduction points tor makes 28 circuits to such,
ten at a time, each given up after 16 s; then it makes none for five minutes (hs_service.c, circuit_expire_building)."""


class OnionServices:
    """``lab.subsystem("onions")``. Keeps no connection open; several may exist for one lab, in several processes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.network = TorNetwork(lab)
        self._owners = Owners(lab.folder)
        self._begun: list[tuple[float, Begin, starting.Finish]] = []
        self.services: dict[str, OnionSpec] = OnionsSpec.model_validate(lab.plan.sections["onions"]).root

    def address(self, service: str) -> str:
        """The address of a service, with ``.onion``; it follows from the topology's seed."""
        return onion_address(self.key(service).public)

    def key(self, service: str) -> Ed25519Key:
        """The identity key of a service; it follows from the topology's seed."""
        self._spec(service)
        return onion_key(self.lab.plan.seed, service)

    def responsible(self, service: str) -> Responsible:
        """Where clients look for a service, by the network's directory as it is now."""
        return self.network.directory().ring(self.key(service).public).fetched

    def instances(self, service: str) -> list[str]:
        """The nodes of all instances of a service, running or not, in the order in which they are started."""
        return instance_names(service, self._spec(service))

    def running(self, service: str) -> list[str]:
        """Those whose tor runs now."""
        alive = {process.node for process in self._processes(service) if process.service == "tor"}
        return [name for name in self.instances(service) if name in alive]

    def serve(self) -> None:
        """Start the web servers of instances in containers: the engine is slow once relays make their keys."""
        for service, spec in self.services.items():
            new = self._new_nodes(service, spec.instances)
            nodes = [node for node in new if self.lab.plan.node(node.name).runtime == "container"]
            webserver.ensure(self.lab, nodes, spec.content.size, self.lab.plan.seed)

    def begin_all(self, directory: Directory, progress: Progress | None = None) -> None:
        """Start the first instances of every service on a network that comes up and will have this directory.

        TestbedError and the like as of ``start``; ``finish_all`` has to follow when the network is up.
        """
        for service, spec in self.services.items():
            nodes = self._new_nodes(service, spec.instances)
            with self._undone(service, nodes):
                strategy = strategies.find(spec.publish)
                begun = starting.begin(self, service, strategy, nodes, progress or Silent(), directory=directory)
                self._begun.append((time.monotonic(), begun, starting.launch(begun)))

    def finish_all(self) -> None:
        """Start every other instance as the topology says, and return when all have published.

        A service that has waited for its network in vain, or for another one, is started anew.
        """
        begun_all, self._begun = self._begun, []
        now, directory = time.monotonic(), self.network.directory()
        for since, begun, finish in begun_all:
            if now - since > PATIENCE or begun.directory.consensus_text != directory.consensus_text:
                self.lab.event("onion_anew", service=begun.service, waited=round(now - since, 3))
                for node in begun.nodes:
                    node.close()
                self.stop(begun.service)
                self.start(begun.service, progress=begun.progress)
                continue
            with self._undone(begun.service, begun.nodes):
                self._published(begun, finish())
            for node in begun.nodes:
                node.close()

    def start(
        self,
        service: str,
        instances: int | None = None,
        publish: str | None = None,
        progress: Progress | None = None,
    ) -> list[Publication]:
        """Start the first ``instances`` instances of a service (all), each as on a new machine, and publish.

        ``publish`` is the topology's unless given, see ``strategies.STRATEGIES``.

        Returns when every upload has been answered and each responsible HSDir has acknowledged a descriptor of one of
        the instances: what became of each one's uploads. TestbedError if that cannot be, or not in time; the instances
        are then stopped again.
        """
        spec = self._spec(service)
        number = spec.instances if instances is None else instances
        if not 1 <= number <= spec.instances:
            raise TestbedError(
                f"{number} instances of {service!r} cannot be started; the topology has {spec.instances}",
                remedy=f"set `onions.{service}.instances` to {number}, or start fewer",
            )
        strategy = strategies.find(publish or spec.publish)
        if self.running(service):
            raise TestbedError(f"{', '.join(self.running(service))} run already", remedy="stop the service first")
        nodes = self._new_nodes(service, number)
        with self._undone(service, nodes):
            directory = self.network.directory()
            begun = starting.begin(self, service, strategy, nodes, progress or Silent(), directory=directory)
            publications = self._published(begun, starting.launch(begun)())
        for node in nodes:
            node.close()
        return publications

    def join(self, service: str, instance: str, progress: Progress | None = None) -> Publication:
        """Start one more instance, as on a new machine, beside those that run; it publishes by itself.

        Returns as ``start`` does, and raises as it does; of the others nothing changes then.
        """
        if instance not in self.instances(service):
            raise TestbedError(
                f"{service!r} has no instance {instance!r}",
                remedy=f"its instances: {', '.join(self.instances(service))}",
            )
        if instance in self.running(service):
            raise TestbedError(f"{instance} runs already")
        strategy, names = starting.recorded(self, service)
        if instance not in names and strategy.name not in starting.BY_THEMSELVES:
            raise TestbedError(
                f"{instance} was not among those that were started, so `{strategy.name}` does not know it",
                remedy=f"it knows {', '.join(names)}",
            )
        node = make_node(self.lab, instance)
        try:
            directory = self.network.directory()
            begun = starting.begin(
                self, service, strategy, [node], progress or Silent(), directory=directory, joining=True
            )
            publications = self._published(begun, starting.launch(begun)())
        except BaseException as error:
            cause = blame(error, [node]) if isinstance(error, ControlError) else error
            for process in self._processes(service):
                if process.node == instance:
                    process.signal(signal.SIGKILL)
            raise cause from error
        finally:
            node.close()
        return publications[0]

    def stop(self, service: str, progress: Progress | None = None, *, number: int = signal.SIGKILL) -> None:
        """End tor and web server of every instance that runs, by SIGKILL unless another signal is given.

        Who publishes for them is ended first.
        """
        starting.ended(self, service)
        processes = self._processes(service)
        for process in processes:
            process.signal(number)
        for done, process in enumerate(processes, 1):
            process.wait_gone(10)
            (progress or Silent()).update(f"{service} stopped", done, len(processes))
        if processes:
            self.lab.event("onion_stopped", service=service, instances=sorted({item.node for item in processes}))

    def hsdir_map(self, service: str) -> list[HSDirEntry]:
        """What each responsible HSDir of a service holds now: whose descriptor, and its revision counter."""
        self._remember(service)
        hsdirs = self.responsible(service).hsdirs
        return read_hsdirs(self.network, self.address(service), hsdirs, self._owners.known())

    def forget_descriptors(self) -> None:
        """Make all clients forget the descriptors of all services, see ``TorNetwork.forget_descriptors``."""
        self.network.forget_descriptors([self.address(service) for service in self.services])

    def descriptor(self, instance: str) -> Outer:
        """The current descriptor of a running instance, as it would upload it now."""
        return parse_outer(self._descriptor(instance)[0])

    def content(self, instance: str) -> Content:
        """The same with its introduction points."""
        return read_descriptor(*self._descriptor(instance))

    def _descriptor(self, instance: str) -> tuple[str, bytes]:
        """An instance's current descriptor, and the public key of the service that it is of."""
        service = next((name for name in self.services if instance in self.instances(name)), "")
        if not service:
            raise TestbedError(f"{instance!r} is no instance of an onion service", where="onions")
        strategy, _ = starting.recorded(self, service)
        public = strategies.key_of(strategy, self.lab.plan.seed, service, instance).public
        node = make_node(self.lab, instance)
        try:
            label = onion_address(public).removesuffix(".onion")
            return node.require().getinfo(f"hs/service/desc/id/{label}"), public
        finally:
            node.close()

    def _new_nodes(self, service: str, number: int) -> list[TorNode]:
        return [make_node(self.lab, name) for name in self.instances(service)[:number]]

    @contextlib.contextmanager
    def _undone(self, service: str, nodes: Sequence[TorNode]) -> Iterator[None]:
        """After an error in the block nothing of the service runs, and the error says whose fault it was."""
        try:
            yield
        except BaseException as error:
            cause = blame(error, nodes) if isinstance(error, ControlError) else error
            self.stop(service)
            for node in nodes:
                node.close()
            raise cause from error

    def _published(self, begun: Begin, publications: list[Publication]) -> list[Publication]:
        """Make sure that each responsible HSDir has a descriptor of a service that has been started."""
        service = begun.service
        known = self._remember(service)
        acknowledged = set().union(*(item.acknowledged() for item in publications))
        unknown = [hsdir for hsdir in begun.wanted.hsdirs if hsdir.fingerprint not in acknowledged]
        if unknown and begun.strategy.name in starting.BY_THEMSELVES:
            # it answered for both descriptors; or it refused all of ours, for what it has from before looks newer
            reissue(self, service, begun.nodes[-1].name, beside=known)
        elif unknown:
            entries = read_hsdirs(self.network, self.address(service), unknown, self._owners.known())
            lacking = [entry.nickname for entry in entries if not entry.instance]
            if lacking:
                raise TestbedError(f"{', '.join(lacking)} took no descriptor of {service}", where="onions")
        names = [node.name for node in begun.nodes]
        self.lab.event("onion_ready", service=service, instances=names, publish=begun.strategy.name)
        return publications

    def _spec(self, service: str) -> OnionSpec:
        try:
            return self.services[service]
        except KeyError:
            known = ", ".join(self.services) or "none"
            raise TestbedError(f"there is no onion service {service!r}", remedy=f"services: {known}") from None

    def _processes(self, service: str) -> list[Process]:
        names = set(self.instances(service))
        return [process for process in self.lab.processes() if process.node in names and process.alive()]

    def _remember(self, service: str) -> list[str]:
        """Keep whose keys are in which descriptor; the instances that run and have told theirs."""
        found = {}
        for name in self.running(service):
            with contextlib.suppress(TestbedError, ValueError):  # not ready yet, or just ended
                found[name] = self.content(name)
        self._owners.remember(found)
        return list(found)
