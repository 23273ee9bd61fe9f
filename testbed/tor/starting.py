"""Starting instances of an onion service in one of the ways in which they can be published."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError, WaitTimeout
from testbed.plan.types import Service
from testbed.progress import Progress
from testbed.tor import strategies, torrc, webserver
from testbed.tor.balance.settings import BalancerSettings, Timers
from testbed.tor.directory import Directory
from testbed.tor.distribute.journal import read_json
from testbed.tor.distribute.settings import Member, Settings
from testbed.tor.helper import Helper
from testbed.tor.hsdir import Responsible
from testbed.tor.hsdirmap import default_readers
from testbed.tor.keys import hidden_service_files, onion_address, onion_key
from testbed.tor.node import TorNode, check_alive, prepare, start
from testbed.tor.publication import Publication, descriptor_name
from testbed.tor.publish import Publisher
from testbed.tor.spec import OnionSpec
from testbed.tor.strategies import Strategy
from testbed.tor.timeperiod import require_current
from testbed.tor.torrc import Paths

if TYPE_CHECKING:
    from testbed.tor.onions import OnionServices

LIMIT = 120.0
"""Seconds from the start of the instances until every HSDir holds what it should; 6 to 15 is usual."""
DISTRIBUTE = "testbed.tor.distribute"
SUPERVISE = "testbed.tor.balance.supervisor"
BY_THEMSELVES = ("naive", "simultaneous", "late")
"""Ways in which each instance publishes alone."""
_TICK = 0.1
_LOOK = 1.0
"""Seconds between looks at what HSDirs hold."""


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
    onions: OnionServices, service: str, strategy: Strategy, nodes: Sequence[TorNode], progress: Progress
) -> Begin:
    """Check that it can be done now, with these instances; TestbedError if not. Nothing is touched."""
    directory = onions.network.directory()
    consensus = directory.consensus
    begun = Begin(onions, service, onions.services[service], strategy, directory, nodes, progress)
    if not strategy.mixed or strategy.every:
        require_current(consensus.periods.interval, time.time(), valid_after=consensus.valid_after)
    problem, remedy = strategies.number_problem(strategy, len(nodes), len(begun.wanted.hsdirs))
    if problem:
        raise TestbedError(problem, where="onions", remedy=remedy)
    late_instance(begun.spec, len(nodes) if strategy.name == "late" else begun.spec.instances)
    if strategy.every and len(begun.wanted.hsdirs) < 2 * onions.network.spec.hsdir_spread:
        raise TestbedError(
            f"OnionBalance needs {2 * onions.network.spec.hsdir_spread} HSDirs, the network has fewer",
            where="onions",
            remedy="set `tor.relays` higher or `tor.hsdir_spread` lower",
        )
    return begun


def run(begun: Begin) -> list[Publication]:
    """Start the instances and whatever publishes them; returns when that has been done, as ``OnionServices.start``."""
    _prepare(begun, held=begun.strategy.name == "simultaneous")
    _remember(begun)
    publish: dict[str, Callable[[Begin], list[Publication]]] = {
        "distributor": _distributed,
        "hybrid": _distributed,
        "onionbalance": _balanced,
    }
    return publish.get(begun.strategy.name, _by_themselves)(begun)


def join(begun: Begin) -> list[Publication]:
    """As ``run``, for instances of a service that runs already; whoever publishes the others is told of it by that."""
    _prepare(begun)
    if begun.strategy.name in BY_THEMSELVES:
        return _uploads(begun).naive(0)
    start(begun.onions.lab, begun.nodes)
    helper = helper_of(begun.onions, begun.service)
    if begun.strategy.every:
        return _await_mixed(begun, helper)
    return _await_placed(begun, helper)


def helper_of(onions: OnionServices, service: str) -> Helper:
    """The program that publishes for a service, where there is one."""
    return Helper(onions.lab, service)


def recorded(onions: OnionServices, service: str) -> tuple[Strategy, list[str]]:
    """How a service was last started, and with which instances."""
    facts = read_json(_record(onions, service))
    return strategies.find(facts.get("publish", "naive")), facts.get("instances", [])


def end_helpers(onions: OnionServices, service: str) -> None:
    """End what publishes for a service."""
    helper_of(onions, service).stop()
    front = _front_name(service)
    for process in onions.lab.processes():
        if process.service == front and process.alive():
            process.signal(9)
            process.wait_gone(10)


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


def _distributed(begun: Begin) -> list[Publication]:
    start(begun.onions.lab, begun.nodes)
    helper = helper_of(begun.onions, begun.service)
    folder = helper.fresh(keep=("counters.json",))
    for name, content in hidden_service_files(onion_key(begun.seed, begun.service)).items():
        path = folder / "key" / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content)
    network = begun.onions.network
    settings = Settings(
        mode="hybrid" if begun.strategy.mixed else "distributor",
        key=str(folder / "key"),
        instances=tuple(_member(begun, node) for node in begun.nodes),
        agents=tuple(Member(name=n, control=str(network.control_path(n))) for n in default_readers(network)),
        folder=str(folder),
        poll=max(1.0, len(begun.nodes) / 10),
        verify=10.0,
    )
    helper.start(DISTRIBUTE, settings.model_dump_json(), service=begun.service)
    return _await_placed(begun, helper)


def _member(begun: Begin, node: TorNode) -> Member:
    address = ""
    if begun.strategy.own_keys:
        address = onion_address(strategies.instance_key(begun.seed, node.name).public)
    return Member(name=node.name, control=str(node.paths.control), address=address)


def _await_placed(begun: Begin, helper: Helper) -> list[Publication]:
    """Wait until the distributor has placed and fetched back everything."""

    def placed() -> list[Publication] | None:
        status = helper.status()
        shelf = next((item for item in status.get("shelves", ()) if item["fetched"]), None)
        done = sum(item["verified"] for item in shelf["hsdirs"]) if shelf else 0
        waiting = ", ".join(f"{name}: {why}" for name, why in status.get("waiting", {}).items())
        begun.progress.update(f"{begun.service} published", done, len(begun.wanted.hsdirs), waiting[:60])
        if not status.get("complete") or not shelf or not _knows(begun, status["live"]):
            return None
        return _placed(begun, shelf)

    return _await(begun, helper, placed, lambda: json.dumps(helper.status().get("waiting", {})))


def _knows(begun: Begin, live: dict[str, str]) -> bool:
    """Whether it is the instances as they run now that have been placed, and not what was there before."""
    try:
        return all(begun.onions.descriptor(node.name).signing_key.hex() == live.get(node.name) for node in begun.nodes)
    except TestbedError:
        return False


def _placed(begun: Begin, shelf: dict[str, Any]) -> list[Publication]:
    """What the distributor did for each instance, in the form in which uploads of its own would be told."""
    name = descriptor_name(begun.wanted)
    label = begun.onions.address(begun.service).removesuffix(".onion")
    publications = {node.name: Publication(node.name, label, name) for node in begun.nodes}
    for item in shelf["hsdirs"]:
        for instance in item["holds"]:
            if instance in publications:
                publication = publications[instance]
                publication.nicknames[item["fingerprint"]] = item["nickname"]
                publication.begun[item["fingerprint"]] = publication.accepted[item["fingerprint"]] = 1
    return list(publications.values())


def _balanced(begun: Begin) -> list[Publication]:
    publications = _uploads(begun).naive(0)
    helper = helper_of(begun.onions, begun.service)
    folder = helper.fresh()
    key = folder / "master"
    key.write_bytes(hidden_service_files(onion_key(begun.seed, begun.service))["hs_ed25519_secret_key"])
    settings = BalancerSettings(
        key=str(key),
        instances=tuple(onion_address(strategies.instance_key(begun.seed, node.name).public) for node in begun.nodes),
        control=str(_start_front(begun)),
        folder=str(folder),
        spread=begun.onions.network.spec.hsdir_spread,
        timers=Timers(),
    )
    helper.start(SUPERVISE, settings.model_dump_json(), service=begun.service)
    _await_mixed(begun, helper)
    return publications


def _front_name(service: str) -> str:
    return f"front-{service}"


def front(onions: OnionServices, service: str) -> TorNode:
    """The tor that OnionBalance fetches and uploads by: a client, beside the first authority."""
    node = onions.network.authorities[0]
    return TorNode(node, "client", "", Paths(onions.lab.node_folder(node) / _front_name(service)))


def _start_front(begun: Begin) -> Path:
    lab, node = begun.onions.lab, front(begun.onions, begun.service)
    node.paths.node.mkdir(exist_ok=True)
    options = torrc.common(node.paths, begun.onions.network.authority_lines())
    options.append(("SocksPort", f"unix:{node.paths.socks}"))
    prepare(node, torrc.with_extra(options, begun.onions.network.spec.torrc_options), begun.directory.files())
    spawn_front(begun.onions, begun.service)
    lab.event("onion_front", node.name, service=begun.service)
    return node.paths.control


def spawn_front(onions: OnionServices, service: str) -> None:
    """Start that tor, also again after its end."""
    node = front(onions, service)
    argv = ("tor", "-f", str(node.paths.torrc), "--defaults-torrc", str(node.paths.empty))
    onions.lab.spawn(node.name, Service(name=_front_name(service), argv=argv))


def _await_mixed(begun: Begin, helper: Helper) -> list[Publication]:
    """Wait until every HSDir gives a descriptor with introduction points of all instances."""
    names = {node.name for node in begun.nodes}
    looked = 0.0
    seen: dict[str, tuple[str, ...]] = {}

    def mixed() -> list[Publication] | None:
        nonlocal looked
        if time.monotonic() - looked < _LOOK:
            return None
        seen.update({entry.nickname: entry.instances for entry in begun.onions.hsdir_map(begun.service)})
        looked = time.monotonic()
        done = sum(names <= set(instances) for instances in seen.values())
        begun.progress.update(f"{begun.service} published", done, len(seen))
        return [] if done == len(seen) else None

    return _await(begun, helper, mixed, lambda: json.dumps(seen))


def _await(
    begun: Begin, helper: Helper, done: Callable[[], list[Publication] | None], seen: Callable[[], str]
) -> list[Publication]:
    begun_at = time.monotonic()
    while (result := done()) is None:
        check_alive(begun.nodes)
        helper.require()
        if time.monotonic() - begun_at > LIMIT:
            raise WaitTimeout(f"the HSDirs to hold all of {begun.service}", LIMIT, seen(), where=helper.name)
        time.sleep(_TICK)
    return result
