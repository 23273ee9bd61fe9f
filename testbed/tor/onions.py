"""Onion services whose instances share one identity key: start, stop, and who is published where."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Literal, cast

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.progress import Progress, Silent
from testbed.runtime.base import Process
from testbed.tor import torrc, webserver
from testbed.tor.control import ControlError
from testbed.tor.descriptor import Outer, parse_outer
from testbed.tor.hsdirmap import HSDirEntry, read_hsdirs
from testbed.tor.keys import hidden_service_files, onion_address, onion_key
from testbed.tor.network import TorNetwork
from testbed.tor.node import TorNode, blame, make_node, prepare
from testbed.tor.publication import Publication, descriptor_name
from testbed.tor.publish import Publisher
from testbed.tor.spec import OnionSpec, OnionsSpec
from testbed.tor.subsystem import instance_names
from testbed.tor.timeperiod import require_current

Publish = Literal["naive", "simultaneous"]


class OnionServices:
    """``lab.subsystem("onions")``. Keeps no connection open; several may exist for one lab, in several processes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.network = TorNetwork(lab)
        self.services: dict[str, OnionSpec] = OnionsSpec.model_validate(lab.plan.sections["onions"]).root

    def address(self, service: str) -> str:
        """The address of a service, with ``.onion``; it follows from the topology's seed."""
        self._spec(service)
        return onion_address(onion_key(self.lab.plan.seed, service).public)

    def instances(self, service: str) -> list[str]:
        """The nodes of all instances of a service, running or not, in the order in which they are started."""
        return instance_names(service, self._spec(service))

    def running(self, service: str) -> list[str]:
        """Those whose tor runs now."""
        alive = {process.node for process in self._processes(service) if process.service == "tor"}
        return [name for name in self.instances(service) if name in alive]

    def start_all(self, progress: Progress | None = None) -> None:
        """Start every instance of every service as the topology says."""
        for service in self.services:
            self.start(service, progress=progress)

    def start(
        self,
        service: str,
        instances: int | None = None,
        publish: str | None = None,
        progress: Progress | None = None,
    ) -> list[Publication]:
        """Start the first ``instances`` instances of a service (all), each as on a new machine, and publish.

        ``publish`` is the topology's unless given. ``naive``: each starts ``stagger`` after the one before and
        publishes by itself. ``simultaneous``: all get ready without network and are given it at one moment.

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
        mode = publish or spec.publish
        if mode not in ("naive", "simultaneous"):
            raise TestbedError(f"{mode!r} is no way to publish", remedy="use naive or simultaneous")
        if self.running(service):
            raise TestbedError(f"{', '.join(self.running(service))} run already", remedy="stop the service first")
        nodes = [make_node(self.lab, name) for name in self.instances(service)[:number]]
        try:
            return self._start(service, spec, nodes, cast(Publish, mode), progress or Silent())
        except BaseException as error:
            cause = blame(error, nodes) if isinstance(error, ControlError) else error
            self.stop(service)
            raise cause from error
        finally:
            for node in nodes:
                node.close()

    def join(self, service: str, instance: str, progress: Progress | None = None) -> Publication:
        """Start one more instance, as on a new machine, beside those that run; it publishes by itself.

        Returns as ``start`` does, and raises as it does; of the others nothing changes then.
        """
        spec = self._spec(service)
        if instance not in self.instances(service):
            raise TestbedError(
                f"{service!r} has no instance {instance!r}",
                remedy=f"its instances: {', '.join(self.instances(service))}",
            )
        if instance in self.running(service):
            raise TestbedError(f"{instance} runs already")
        node = make_node(self.lab, instance)
        try:
            (publication,) = self._start(service, spec, [node], "naive", progress or Silent())
        except BaseException as error:
            cause = blame(error, [node]) if isinstance(error, ControlError) else error
            for process in self._processes(service):
                if process.node == instance:
                    process.signal(signal.SIGKILL)
            raise cause from error
        finally:
            node.close()
        return publication

    def stop(self, service: str, progress: Progress | None = None, *, number: int = signal.SIGKILL) -> None:
        """End tor and web server of every instance that runs, by SIGKILL unless another signal is given."""
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
        key = onion_key(self.lab.plan.seed, service)
        directory = self.network.directory()
        hsdirs = directory.ring(key.public).fetched.hsdirs
        return read_hsdirs(self.network, self.address(service), hsdirs, self._owners())

    def forget_descriptors(self) -> None:
        """Make all clients forget the descriptors of all services, see ``TorNetwork.forget_descriptors``."""
        self.network.forget_descriptors([self.address(service) for service in self.services])

    def descriptor(self, instance: str) -> Outer:
        """The current descriptor of a running instance, as it would upload it now."""
        service = next((name for name in self.services if instance in self.instances(name)), "")
        if not service:
            raise TestbedError(f"{instance!r} is no instance of an onion service", where="onions")
        node = make_node(self.lab, instance)
        label = self.address(service).removesuffix(".onion")
        try:
            return parse_outer(node.require().getinfo(f"hs/service/desc/id/{label}"))
        finally:
            node.close()

    def _start(
        self, service: str, spec: OnionSpec, nodes: list[TorNode], mode: Publish, progress: Progress
    ) -> list[Publication]:
        directory = self.network.directory()
        consensus = directory.consensus
        require_current(consensus.periods.interval, time.time(), valid_after=consensus.valid_after)
        key = onion_key(self.lab.plan.seed, service)
        wanted = directory.ring(key.public).fetched
        files = {f"service/{name}": content for name, content in hidden_service_files(key).items()}
        authorities = self.network.authority_lines()
        for node in nodes:
            options = torrc.common(node.paths, authorities)
            options += torrc.instance(node.paths, held=mode == "simultaneous")
            prepare(node, torrc.with_extra(options, self.network.spec.torrc_options), {**directory.files(), **files})
            webserver.prepare(node.name, node.paths, spec.content.size, self.lab.plan.seed)
        webserver.start(self.lab, nodes)
        label = onion_address(key.public).removesuffix(".onion")
        publications = [Publication(node.name, label, descriptor_name(wanted)) for node in nodes]
        publisher = Publisher(self.lab, service, nodes, publications, wanted.hsdirs, progress)
        if mode == "naive":
            publisher.naive(spec.stagger / 1e6)
        else:
            publisher.simultaneous()
        self._remember(service)
        unknown = [hsdir for hsdir in wanted.hsdirs if hsdir.fingerprint not in publisher.acknowledged()]
        if unknown:  # it answered for both descriptors, or refused all of ours: ask it
            entries = read_hsdirs(self.network, self.address(service), unknown, self._owners())
            lacking = [entry.nickname for entry in entries if not entry.instance]
            if lacking:
                raise TestbedError(f"{', '.join(lacking)} took no descriptor of {service}", where="onions")
        self.lab.event("onion_ready", service=service, instances=[node.name for node in nodes], publish=mode)
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

    def _remember(self, service: str) -> None:
        """Keep which instance has which signing key; HSDirs hold descriptors for longer than instances live."""
        owners = self._owners()
        for name in self.running(service):
            with contextlib.suppress(TestbedError):  # not ready yet, or just ended
                owners[self.descriptor(name).signing_key] = name
        text = json.dumps({key.hex(): name for key, name in owners.items()})
        path = self.lab.folder / "onions.json"
        new = path.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        new.write_text(text)
        new.replace(path)

    def _owners(self) -> dict[bytes, str]:
        try:
            known = json.loads((self.lab.folder / "onions.json").read_text())
        except FileNotFoundError:
            return {}
        return {bytes.fromhex(key): name for key, name in known.items()}
