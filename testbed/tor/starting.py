"""Starting instances of an onion service in one of the ways in which they can be published."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.progress import Progress
from testbed.tor import published, strategies, torrc, webserver
from testbed.tor.directory import Directory
from testbed.tor.distribute.journal import read_json
from testbed.tor.hsdir import Responsible
from testbed.tor.keys import onion_address, onion_key
from testbed.tor.node import TorNode, prepare, start
from testbed.tor.publication import Publication, descriptor_name
from testbed.tor.publish import Publisher
from testbed.tor.spec import OnionSpec
from testbed.tor.strategies import Strategy
from testbed.tor.timeperiod import require_current

if TYPE_CHECKING:
    from testbed.tor.onions import OnionServices

BY_THEMSELVES = ("naive", "simultaneous", "late")
"""Ways in which each instance publishes alone."""


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

    @property
    def seed(self) -> int:
        """The topology's."""
        return self.onions.lab.plan.seed

    @property
    def wanted(self) -> Responsible:
        """Where clients look for the service."""
        return self.directory.ring(onion_key(self.seed, self.service).public).fetched


def begin(
    onions: OnionServices,
    service: str,
    strategy: Strategy,
    nodes: Sequence[TorNode],
    progress: Progress,
    *,
    joining: bool = False,
) -> Begin:
    """Check that it can be done now, with these instances; TestbedError if not. Nothing is touched.

    ``joining``: others run already, so how many these are does not matter.
    """
    directory = onions.network.directory()
    consensus = directory.consensus
    begun = Begin(onions, service, onions.services[service], strategy, directory, nodes, progress)
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


def run(begun: Begin) -> list[Publication]:
    """Start the instances and whatever publishes them; returns when that has been done, as ``OnionServices.start``."""
    _prepare(begun, held=begun.strategy.name == "simultaneous")
    _remember(begun)
    if begun.strategy.name in BY_THEMSELVES:
        return _by_themselves(begun)
    if not begun.strategy.every:
        return published.distributed(begun)
    publications = _uploads(begun).naive(0)
    published.balance(begun)
    return publications


def join(begun: Begin) -> list[Publication]:
    """As ``run``, for instances of a service that runs already; whoever publishes the others is told of it by that."""
    _prepare(begun)
    if begun.strategy.uploads:
        publications = _uploads(begun).naive(0)
        if begun.strategy.every:
            published.await_mixed(begun)
        return publications
    start(begun.onions.lab, begun.nodes)
    return published.await_placed(begun)


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


def _prepare(begun: Begin, *, held: bool = False) -> None:
    network, lab = begun.onions.network, begun.onions.lab
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
        webserver.prepare(node.name, node.paths, begun.spec.content.size, begun.seed)
    webserver.start(lab, begun.nodes)


def _uploads(begun: Begin) -> Publisher:
    """For instances that upload by themselves."""
    publications = []
    for node in begun.nodes:
        key = strategies.key_of(begun.strategy, begun.seed, begun.service, node.name)
        fetched = begun.directory.ring(key.public).fetched
        label = onion_address(key.public).removesuffix(".onion")
        publications.append(Publication(node.name, label, descriptor_name(fetched)))
    hsdirs = begun.wanted.hsdirs if not begun.strategy.own_keys else ()
    return Publisher(begun.onions.lab, begun.service, begun.nodes, publications, hsdirs, begun.progress)


def _by_themselves(begun: Begin) -> list[Publication]:
    publisher, spec = _uploads(begun), begun.spec
    if begun.strategy.name == "simultaneous":
        return publisher.simultaneous()
    if begun.strategy.name == "late":
        return publisher.late(spec.stagger / 1e6, late_instance(spec, len(begun.nodes)), spec.late_by / 1e6)
    return publisher.naive(spec.stagger / 1e6)


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
