"""Which way to publish spreads clients over instances, and what does it cost? (UCL, 2015; all ways side by side.)

For each way and number of instances: fresh clients, which have no descriptor yet, show the split; then all clients
fetch again and again, for download times; then the instance that serves most is ended, and fresh clients set out every
half second. Where somebody redistributes, the last part is done a second time with that switched off.

    testbed run onion_distributor                                    N = 3 and 6, about 12 minutes a repeat
    testbed run onion_distributor --param instances=3 --param publish=naive,distributor --param fresh=40
"""

import time
from functools import partial

import pytest

from testbed.lab.lab import Lab
from testbed.measure.load import recorder, run_load
from testbed.measure.measure import Measure
from testbed.tor.experiment import EXPECTED, fitting, moment, one_number, sockets
from testbed.tor.freshprobe import RecordedFreshClients
from testbed.tor.instances import end
from testbed.tor.introductions import read_introductions
from testbed.tor.onions import OnionServices
from testbed.tor.published import helper_of
from testbed.tor.watch import hsdirs_recorded, record_hsdirs

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
    onions: OnionServices = lab.subsystem("onions")
    service = next(iter(onions.services))
    spec = onions.services[service]
    numbers = fitting(measure, "instances", spec.instances, least=2)
    measure.watch(lab, spec.attach or "core", onions.instances(service))
    for repeat in range(1, measure.repeats + 1):
        for publish in measure.words("publish"):
            for number in numbers:
                _measure(onions, measure, fresh_clients, service, number, publish, repeat)


def _measure(
    onions: OnionServices,
    measure: Measure,
    fresh_clients: RecordedFreshClients,
    service: str,
    number: int,
    publish: str,
    repeat: int,
) -> None:
    name = f"n{number}-{publish}-r{repeat}"
    onions.start(service, number, publish, progress=measure.progress)
    try:
        most = _split(onions, measure, fresh_clients, service, number, publish, repeat)
        _load(onions, measure, service, number, publish, repeat, name)
        loss = partial(_failover, onions, measure, fresh_clients, service, most, publish, repeat)
        if measure.seconds("failover") > 0:
            loss(redistributed=publish in REDISTRIBUTED)
            if publish in REDISTRIBUTED:
                onions.stop(service)
                onions.start(service, number, publish, progress=measure.progress)
                helper_of(onions, service).stop()
                loss(redistributed=False)
    finally:
        onions.stop(service)


def _split(
    onions: OnionServices,
    measure: Measure,
    fresh_clients: RecordedFreshClients,
    service: str,
    number: int,
    publish: str,
    repeat: int,
) -> str:
    """Whom fresh clients reach; the instance that most of them reach."""
    step = f"split-n{number}-{publish}-r{repeat}"
    detail = {"experiment": "split", "n": number, "nodes": onions.running(service), "publish": publish}
    with measure.step(step, **detail, repeat=repeat, counts_only=True):
        record_hsdirs(onions, service, measure, step)
        seen = read_introductions(onions, service)
        measure.event("introductions", step=step, relays=seen.relays, most=seen.most, points=seen.points)
        fetched = fresh_clients(one_number(measure, "fresh"), step=step, service=service)
    served = [item.instance for item in fetched if item.ok]
    assert served, f"no fresh client was served in step {step}"
    return max(onions.running(service), key=served.count)


def _load(
    onions: OnionServices, measure: Measure, service: str, number: int, publish: str, repeat: int, name: str
) -> None:
    """All clients, with one descriptor each for the whole step."""
    onions.forget_descriptors()
    detail = {"instances": number, "publish": publish, "repeat": repeat}
    with measure.step(name, **detail), hsdirs_recorded(onions, service, measure, name):
        summary = run_load(
            sockets(onions.network),
            onions.address(service),
            80,
            "/file",
            size=onions.services[service].content.size,
            seed=onions.lab.plan.seed,
            duration=measure.seconds("seconds"),
            on_result=recorder(measure.run, name),
            progress=measure.progress,
        )
    assert summary.ok > 0, f"no download came through in step {name}: {dict(summary.outcomes)}"


def _failover(
    onions: OnionServices,
    measure: Measure,
    fresh_clients: RecordedFreshClients,
    service: str,
    victim: str,
    publish: str,
    repeat: int,
    *,
    redistributed: bool,
) -> None:
    """Fresh clients, one after the other, from the moment on when ``victim`` is ended."""
    names = onions.running(service)
    step = f"loss-n{len(names)}-{publish}-{'with' if redistributed else 'without'}-r{repeat}"
    detail = {"experiment": "loss", "n": len(names), "nodes": names, "publish": publish, "repeat": repeat, **EXPECTED}
    detail["redistributed"] = "yes" if redistributed else "no"
    with measure.step(step, **detail):
        setting_out = fresh_clients.every(measure.seconds("every"), step=step, service=service)
        ended = end(onions.lab, [victim])
        moment(measure, step, "ended", victim, t=ended)
        with setting_out:
            time.sleep(measure.seconds("failover"))
        record_hsdirs(onions, service, measure, step)
