"""Programs that publish for the instances of a service: the distributor, and OnionBalance with a tor of its own."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError, WaitTimeout
from testbed.plan.types import Service
from testbed.runtime.base import log_tail
from testbed.tor import torrc
from testbed.tor.balance.settings import BalancerSettings, Timers
from testbed.tor.balance.supervisor import LOG
from testbed.tor.distribute.settings import Member, Settings
from testbed.tor.helper import Helper
from testbed.tor.node import TorNode, check_alive, prepare
from testbed.tor.onion import strategies
from testbed.tor.onion.hsdirmap import read_hsdirs
from testbed.tor.onion.publication import Publication, descriptor_name
from testbed.tor.onion.readers import reader_members
from testbed.tor.protocol.keys import hidden_service_files, onion_address, onion_key
from testbed.tor.torrc import Paths

if TYPE_CHECKING:
    from testbed.tor.onion.services import OnionServices
    from testbed.tor.onion.starting import Begin

LIMIT = 120.0
"""Seconds from the start of the instances until every HSDir holds what it should; 6 to 15 is usual."""
DISTRIBUTE = "testbed.tor.distribute"
SUPERVISE = "testbed.tor.balance.supervisor"
_TICK = 0.1
_LOOK = 1.0
"""Seconds between looks at what HSDirs hold."""


def helper_of(onions: OnionServices, service: str) -> Helper:
    """The program that publishes for a service, where there is one."""
    return Helper(onions.lab, service)


def end_helpers(onions: OnionServices, service: str) -> None:
    """End what publishes for a service."""
    helper_of(onions, service).stop()
    front = _front_name(service)
    for process in onions.lab.processes():
        if process.service == front and process.alive():
            process.signal(signal.SIGKILL)
            process.wait_gone(10)


def distributed(begun: Begin) -> list[Publication]:
    """Start the distributor for instances that run, and wait until it has placed and fetched back everything."""
    helper = helper_of(begun.onions, begun.service)
    folder = helper.fresh(keep=("counters.json",))
    for name, content in hidden_service_files(onion_key(begun.seed, begun.service)).items():
        path = folder / "key" / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content)
    settings = Settings(
        mode="hybrid" if begun.strategy.mixed else "distributor",
        key=str(folder / "key"),
        instances=tuple(_member(begun, node) for node in begun.nodes),
        agents=reader_members(begun.onions.network),
        folder=str(folder),
        poll=max(1.0, len(begun.nodes) / 10),
        verify=10.0,
    )
    helper.start(DISTRIBUTE, settings.model_dump_json(), service=begun.service)
    return await_placed(begun)


def _member(begun: Begin, node: TorNode) -> Member:
    address = ""
    if begun.strategy.own_keys:
        address = onion_address(strategies.instance_key(begun.seed, node.name).public)
    return Member(name=node.name, control=str(node.paths.control), address=address)


def await_placed(begun: Begin) -> list[Publication]:
    """Wait until the distributor has placed and fetched back everything."""
    helper = helper_of(begun.onions, begun.service)

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


def balance(begun: Begin) -> None:
    """Start OnionBalance for instances that have published, and wait until its descriptors are everywhere."""
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
    await_mixed(begun)


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


def await_mixed(begun: Begin) -> None:
    """Wait until every HSDir gives a descriptor with introduction points of all of these instances as they run now."""
    helper = helper_of(begun.onions, begun.service)
    names = {node.name for node in begun.nodes}
    looked = 0.0
    seen: dict[str, tuple[str, ...]] = {}

    def mixed() -> list[Publication] | None:
        nonlocal looked
        if time.monotonic() - looked < _LOOK:
            return None
        owners = {key: node.name for node in begun.nodes for key in begun.onions.content(node.name).keys}
        address, hsdirs = begun.onions.address(begun.service), begun.wanted.hsdirs
        entries = read_hsdirs(begun.onions.network, address, hsdirs, owners)
        seen.update({entry.nickname: entry.instances for entry in entries})
        looked = time.monotonic()
        done = sum(names <= set(instances) for instances in seen.values())
        begun.progress.update(f"{begun.service} published", done, len(seen))
        return [] if done == len(seen) else None

    _await(begun, helper, mixed, lambda: f"{json.dumps(seen)}; OnionBalance said:\n{log_tail(helper.folder / LOG, 30)}")


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
