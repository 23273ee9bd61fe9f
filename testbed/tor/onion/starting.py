"""Starting instances of an onion service in one of the ways in which they can be published."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.progress import Progress
from testbed.tor import torrc
from testbed.tor.directory import Directory
from testbed.tor.distribute.journal import read_json
from testbed.tor.node import TorNode, prepare, start
from testbed.tor.onion import published, strategies, webserver
from testbed.tor.onion.publication import Publication, descriptor_name
from testbed.tor.onion.publish import Publisher, Turn, one_by_one, one_late
from testbed.tor.onion.strategies import Strategy
from testbed.tor.protocol.hsdir import Responsible
from testbed.tor.protocol.keys import onion_address
from testbed.tor.protocol.timeperiod import require_current
from testbed.tor.spec import OnionSpec

if TYPE_CHECKING:
    from testbed.tor.onion.services import OnionServices

BY_THEMSELVES = ("naive", "simultaneous", "late")
"""Ways in which each instance publishes alone."""
Finish = Callable[[], list[Publication]]
"""What ends a start that has begun."""


@dataclass(frozen=True)
class Begin:
    """A service that is being started."""

    onions: OnionServices
    service: str
    spec: OnionSpec
    strategy: Strategy
    directory: Directory
    nodes: Sequence[TorNode]
    progress: Progress
    joining: bool
    """Others run already, so how many these are does not matter."""

    @property
    def seed(self) -> int:
        """The topology's."""
        return self.onions.lab.plan.seed

    @property
    def wanted(self) -> Responsible:
        """Where clients look for the service."""
        return self.directory.ring(self.onions.key(self.service).public).fetched


def begin(
    onions: OnionServices,
    service: str,
    strategy: Strategy,
    nodes: Sequence[TorNode],
    progress: Progress,
    *,
    directory: Directory,
    joining: bool = False,
) -> Begin:
    """Check that it can be done now, with these instances; TestbedError if not. Nothing is touched."""
    consensus = directory.consensus
    begun = Begin(onions, service, onions.services[service], strategy, directory, nodes, progress, joining)
    if not strategy.mixed or strategy.every:
        require_current(consensus.periods.interval, time.time(), valid_after=consensus.valid_after)
    if not joining:
        _check_number(begun)
    return begun


def _check_number(begun: Begin) -> None:
    strategy, number, hsdirs = begun.strategy, len(begun.nodes), len(begun.wanted.hsdirs)
    problem, remedy = strategies.number_problem(strategy, number, hsdirs)
    if problem:
        raise TestbedError(problem, where="onions", remedy=remedy)
    if strategy.name == "late":
        late_instance(begun.spec, number)
    needed = 2 * begun.onions.network.spec.hsdir_spread
    if strategy.every and hsdirs < needed:
        raise TestbedError(
            f"OnionBalance needs {needed} HSDirs, the network has fewer",
            where="onions",
            remedy="set `tor.relays` higher or `tor.hsdir_spread` lower",
        )


def launch(begun: Begin) -> Finish:
    """Start the first of the instances; what has to be called for the rest. The first can wait for their network.

    What is returned starts the others and whatever publishes for them. It returns when that has been done, as
    ``OnionServices.start`` and ``join`` do. Whoever publishes for others is told of one that joins by itself.
    """
    strategy = begun.strategy
    _prepare(begun)
    if not begun.joining:
        _remember(begun)
    if not strategy.uploads:
        start(begun.onions.lab, begun.nodes)
        return partial(published.await_placed if begun.joining else published.distributed, begun)
    publisher = _publisher(begun)
    publisher.begin()

    def finish() -> list[Publication]:
        publications = publisher.finish()
        if strategy.every and begun.joining:
            published.await_mixed(begun)
        elif strategy.every:
            published.balance(begun)
        return publications

    return finish


def recorded(onions: OnionServices, service: str) -> tuple[Strategy, list[str]]:
    """How a service was last started, and with which instances."""
    facts = read_json(_record(onions, service))
    return strategies.find(facts.get("publish", "naive")), facts.get("instances", [])


def ended(onions: OnionServices, service: str) -> None:
    """End what publishes for a service, and forget how it was started."""
    published.end_helpers(onions, service)
    _record(onions, service).unlink(missing_ok=True)


def _record(onions: OnionServices, service: str) -> Path:
    return onions.lab.folder / f"onion-{service}.json"


def _remember(begun: Begin) -> None:
    facts = {"publish": begun.strategy.name, "instances": [node.name for node in begun.nodes]}
    _record(begun.onions, begun.service).write_text(json.dumps(facts))


def _prepare(begun: Begin) -> None:
    network, lab = begun.onions.network, begun.onions.lab
    held = begun.strategy.name == "simultaneous" and not begun.joining
    authorities = network.authority_lines()
    for node in begun.nodes:
        files = strategies.service_files(begun.strategy, begun.seed, begun.service, node.name)
        options = torrc.common(node.paths, authorities)
        options += torrc.instance(node.paths, held=held)
        options += strategies.service_options(
            begun.strategy, single_onion=begun.spec.single_onion, points=begun.spec.introduction_points
        )
        options = torrc.with_extra(options, network.spec.torrc_options)
        prepare(node, options, {**begun.directory.files(), **{f"service/{name}": c for name, c in files.items()}})
    webserver.ensure(lab, begun.nodes, begun.spec.content.size, begun.seed)


def _publisher(begun: Begin) -> Publisher:
    """For instances that upload by themselves."""
    publications = []
    for node in begun.nodes:
        key = strategies.key_of(begun.strategy, begun.seed, begun.service, node.name)
        fetched = begun.directory.ring(key.public).fetched
        label = onion_address(key.public).removesuffix(".onion")
        publications.append(Publication(node.name, label, descriptor_name(fetched)))
    hsdirs = begun.wanted.hsdirs if not begun.strategy.own_keys else ()
    way = "naive" if begun.joining or begun.strategy.every else begun.strategy.name
    turns = _turns(begun, way)
    return Publisher(begun.onions.lab, begun.service, turns, publications, hsdirs, begun.progress, way=way)


def _turns(begun: Begin, way: str) -> list[Turn]:
    nodes, spec = begun.nodes, begun.spec
    if way == "late":
        return one_late(nodes, spec.stagger / 1e6, late_instance(spec, len(nodes)), spec.late_by / 1e6)
    if way == "naive" and not begun.joining and not begun.strategy.every:
        return one_by_one(nodes, spec.stagger / 1e6)
    return [Turn(node) for node in nodes]


def late_instance(spec: OnionSpec, number: int) -> int:
    """Which of the first ``number`` instances is the late one, from 1; TestbedError if it is not among them."""
    late = spec.late or number
    if late > number:
        raise TestbedError(
            f"instance {late} shall be late, but only {number} are started",
            where="onions",
            remedy="start more, or leave `late` out: then it is the last one",
        )
    return late
