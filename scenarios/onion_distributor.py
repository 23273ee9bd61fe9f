"""Which way to publish spreads clients over instances, and what does it cost? (UCL, 2015; all ways side by side.)

For each way and number of instances: fresh clients, which have no descriptor yet, show the split; then all clients
fetch again and again, for download times; then the instance that serves most is ended, and fresh clients set out every
half second. Where somebody redistributes, the last part is done a second time with that switched off.

    testbed run onion_distributor                                    N = 3 and 6, about 12 minutes a repeat
    testbed run onion_distributor --param instances=3 --param publish=naive,distributor --param fresh=40
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.measure.experiment import EXPECTED, Trial, first_service, fitting, moment, one_number
from testbed.tor.measure.freshprobe import RecordedFreshClients
from testbed.tor.measure.introductions import read_introductions
from testbed.tor.measure.watch import load_step, record_hsdirs
from testbed.tor.onion.instances import end
from testbed.tor.onion.published import helper_of

pytestmark = pytest.mark.testbed(
    topology="onion-distributor.yaml",
    hold=["onions"],
    parameters={
        "instances": "3,6",
        "publish": "naive,simultaneous,distributor,onionbalance,hybrid",
        "fresh": "120",
        "seconds": "20s",
        "failover": "15s",
        "every": "500ms",
    },
)

REDISTRIBUTED = ("distributor", "hybrid")
"""Ways in which somebody puts a dead instance's HSDirs right."""


def test_onion_distributor(lab: Lab, measure: Measure, fresh_clients: RecordedFreshClients) -> None:
    """Every way with every number of instances, as often as repeats say."""
    subject = first_service(lab, measure)
    numbers = fitting(measure, "instances", subject.spec.instances, least=2)
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for publish in measure.words("publish"):
            for number in numbers:
                _trial(subject.trial(number, publish, repeat), fresh_clients)


def _trial(trial: Trial, fresh_clients: RecordedFreshClients) -> None:
    loss = trial.measure.seconds("failover") > 0
    redistributed = trial.publish in REDISTRIBUTED
    with trial.serving():
        most = _split(trial, fresh_clients)
        load_step(trial)
        if loss:
            _failover(trial, fresh_clients, most, redistributed=redistributed)
    if loss and redistributed:
        with trial.serving():
            helper_of(trial.onions, trial.service).stop()
            _failover(trial, fresh_clients, most, redistributed=False)


def _split(trial: Trial, fresh_clients: RecordedFreshClients) -> str:
    """Whom fresh clients reach; the instance that most of them reach."""
    measure, step = trial.measure, f"split-{trial.named(trial.publish)}"
    with measure.step(step, experiment="split", **trial.told, counts_only=True):
        record_hsdirs(trial, step)
        seen = read_introductions(trial.onions, trial.service)
        measure.event("introductions", step=step, relays=seen.relays, most=seen.most, points=seen.points)
        fetched = fresh_clients(one_number(measure, "fresh"), step=step, service=trial.service)
    served = [item.instance for item in fetched if item.ok]
    assert served, f"no fresh client was served in step {step}"
    return max(trial.running, key=served.count)


def _failover(trial: Trial, fresh_clients: RecordedFreshClients, victim: str, *, redistributed: bool) -> None:
    """Fresh clients, one after the other, from the moment on when ``victim`` is ended."""
    measure, step = trial.measure, f"loss-{trial.named(trial.publish, 'with' if redistributed else 'without')}"
    detail = {**trial.told, **EXPECTED, "redistributed": "yes" if redistributed else "no"}
    with measure.step(step, experiment="loss", **detail):
        setting_out = fresh_clients.every(measure.seconds("every"), step=step, service=trial.service)
        ended = end(trial.onions.lab, [victim])
        moment(measure, step, "ended", victim, t=ended)
        with setting_out:
            time.sleep(measure.seconds("failover"))
        record_hsdirs(trial, step)
