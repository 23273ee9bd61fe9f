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
from testbed.tor.measure.experiment import EXPECTED, Trial, first_service, moment, one_number
from testbed.tor.measure.freshprobe import RecordedFreshClients
from testbed.tor.measure.watch import light_traffic, record_hsdirs
from testbed.tor.onion.instances import bring_back, end

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
    subject = first_service(lab, measure)
    instances, publish = one_number(measure, "instances"), measure.text("publish")
    clients = {name: one_number(measure, name) for name in ("fresh", "parallel")}
    subject.start_other()
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for number in measure.integers("dead"):
            trial = subject.trial(instances, publish, repeat)
            with trial.serving(), light_traffic(trial.onions, trial.other):
                _lose(trial, fresh_clients, {"dead": number, "repeat": repeat, **clients})


def _lose(trial: Trial, fresh_clients: RecordedFreshClients, settings: Mapping[str, int]) -> None:
    """Nobody dead, as many others dead as the settings say, as many HSDirs dead, and those back."""
    number, onions, relays = settings["dead"], trial.onions, trial.onions.network.relays
    directory = onions.network.directory()
    responsible = {router.nickname for router in directory.ring(onions.key(trial.service).public).fetched.hsdirs}
    points = {point.relay for name in trial.running for point in onions.content(name).points}
    at = {router.nickname for router in directory.consensus.routers if router.fingerprint in points}
    hsdirs = [name for name in relays if name in responsible]
    beside = [name for name in relays if name not in responsible | at]
    chance = random.Random(f"{trial.measure.seed} {trial.repeat} {number}")
    _fetched(trial, fresh_clients, "none", settings)
    for what, candidates in (("others", beside), ("hsdirs", hsdirs)):
        if len(candidates) < number:
            raise TestbedError(
                f"{number} relays cannot die: the network has {len(candidates)} that are {_WHICH[what]}",
                remedy="set the topology's `tor.relays` higher, or --param dead lower",
            )
        dead = chance.sample(candidates, number)
        end(onions.lab, dead)
        try:
            _fetched(trial, fresh_clients, what, {**settings, "relays": dead, "points": len(at & set(dead))})
        finally:
            bring_back(onions.lab, dead)
    _fetched(trial, fresh_clients, "back", {**settings, "relays": dead})


_WHICH = {"others": "neither HSDirs nor introduction points of the service", "hsdirs": "HSDirs of the service"}


def _fetched(trial: Trial, fresh_clients: RecordedFreshClients, what: str, detail: Mapping[str, Any]) -> None:
    """One step: fresh clients fetch, and where all HSDirs live, what they hold."""
    measure, step = trial.measure, f"{what}{detail['dead']}-r{trial.repeat}"
    with measure.step(step, what=what, nodes=trial.running, experiment="hsdir-loss", **detail, **EXPECTED):
        if what in ("none", "back"):
            record_hsdirs(trial, step)
        moment(measure, step, what)
        fresh_clients(
            detail["fresh"],
            step=step,
            service=trial.service,
            parallel=detail["parallel"],
            timeout=measure.seconds("timeout"),
        )
