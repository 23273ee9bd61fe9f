"""Do clients still find a service when some of its six HSDirs die, and what when they come back?

The instances publish, fresh clients fetch. Then the tor of some relays dies, and fresh clients fetch again. First these
are relays that have nothing to do with the service, for a dead relay also costs clients that would have built a circuit
through it; then as many of the service's HSDirs. An HSDir that comes back has lost its descriptors, and gets none until
the service publishes again; fresh clients fetch once more then.

    testbed run onion_hsdir_loss                                     1, 3 and 5 of six HSDirs, about 3 minutes a repeat
    testbed run onion_hsdir_loss --param dead=3 --param fresh=200 --repeats 3
"""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.experiment import EXPECTED, moment, one_number
from testbed.tor.freshprobe import RecordedFreshClients
from testbed.tor.instances import bring_back, end
from testbed.tor.keys import onion_key
from testbed.tor.onions import OnionServices
from testbed.tor.watch import light_traffic, record_hsdirs

pytestmark = pytest.mark.testbed(
    topology="onion-failover.yaml",
    hold=["onions"],
    parameters={
        "instances": "3",
        "publish": "simultaneous",
        "dead": "1,3,5",
        "fresh": "60",
        "parallel": "4",
        "timeout": "60s",
    },
)


def test_onion_hsdir_loss(lab: Lab, measure: Measure, fresh_clients: RecordedFreshClients) -> None:
    """Every number of dead HSDirs, beside as many other relays, as often as repeats say."""
    onions: OnionServices = lab.subsystem("onions")
    service, *others = onions.services
    instances = one_number(measure, "instances")
    clients = {name: one_number(measure, name) for name in ("fresh", "parallel")}
    for other in others[:1]:
        onions.start(other, progress=measure.progress)
    measure.watch(lab, onions.services[service].attach or "core", onions.instances(service))
    for repeat in range(1, measure.repeats + 1):
        for number in measure.integers("dead"):
            onions.start(service, instances, measure.text("publish"), progress=measure.progress)
            try:
                with light_traffic(onions, others[0] if others else ""):
                    _trial(onions, measure, fresh_clients, service, {"dead": number, "repeat": repeat, **clients})
            finally:
                onions.stop(service)


def _trial(
    onions: OnionServices,
    measure: Measure,
    fresh_clients: RecordedFreshClients,
    service: str,
    settings: Mapping[str, int],
) -> None:
    """Nobody dead, as many others dead as the settings say, as many HSDirs dead, and those back."""
    number = settings["dead"]
    directory = onions.network.directory()
    responsible = {router.nickname for router in directory.ring(_public(onions, service)).fetched.hsdirs}
    points = _introduction_points(onions, service)
    named = {router.fingerprint: router.nickname for router in directory.consensus.routers}
    at = {named.get(point, "") for point in points}
    relays = onions.network.relays
    hsdirs = [name for name in relays if name in responsible]
    beside = [name for name in relays if name not in responsible | at]
    chance = random.Random(f"{measure.seed} {settings['repeat']} {number}")
    detail = {"experiment": "hsdir-loss", **settings}
    _measured(onions, measure, fresh_clients, service, "none", detail)
    for what, candidates in (("others", beside), ("hsdirs", hsdirs)):
        if len(candidates) < number:
            raise TestbedError(
                f"{number} relays cannot die: the network has {len(candidates)} that are {_WHICH[what]}",
                remedy="set the topology's `tor.relays` higher, or --param dead lower",
            )
        dead = chance.sample(candidates, number)
        end(onions.lab, dead)
        try:
            met = {"relays": dead, "points": len(at & set(dead))}
            _measured(onions, measure, fresh_clients, service, what, {**detail, **met})
        finally:
            bring_back(onions.lab, dead)
    _measured(onions, measure, fresh_clients, service, "back", {**detail, "relays": dead})


_WHICH = {"others": "neither HSDirs nor introduction points of the service", "hsdirs": "HSDirs of the service"}


def _measured(
    onions: OnionServices,
    measure: Measure,
    fresh_clients: RecordedFreshClients,
    service: str,
    what: str,
    detail: Mapping[str, Any],
) -> None:
    """One step: fresh clients fetch, and where all HSDirs live, what they hold."""
    step = f"{what}{detail['dead']}-r{detail['repeat']}"
    with measure.step(step, what=what, nodes=onions.running(service), **detail, **EXPECTED):
        if what in ("none", "back"):
            record_hsdirs(onions, service, measure, step)
        moment(measure, step, what)
        fresh_clients(
            detail["fresh"],
            step=step,
            service=service,
            parallel=detail["parallel"],
            timeout=measure.seconds("timeout"),
        )


def _public(onions: OnionServices, service: str) -> bytes:
    return onion_key(onions.lab.plan.seed, service).public


def _introduction_points(onions: OnionServices, service: str) -> set[str]:
    """Fingerprints of the relays at which the running instances can be reached."""
    return {point.relay for name in onions.running(service) for point in onions.content(name).points}
