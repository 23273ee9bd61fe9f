"""An instance that starts late takes every HSDir, and when it dies the service is down although the others live.

(DOI 10.3969/j.issn.1003-6970.2016.02.017.) The first instances publish together, one more publishes after them: its
descriptor replaces theirs. It is stopped. The others do not notice: tor publishes again after 60 to 120 minutes. That
too long for an experiment, so after ``republish`` one survivor is made to publish, by a restart of its tor. The hole is
measured by clients that ask again and again, and by fresh clients, which have no stale descriptor.

    testbed run onion_late_starter                                   the paper's network, about 4 minutes a repeat
    testbed run onion_late_starter --param instances=3 --param republish=90s --repeats 5
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.experiment import EXPECTED, fitting, moment, signals
from testbed.tor.instances import end, publish_again, signal_number
from testbed.tor.onions import OnionServices
from testbed.tor.watch import asking, hsdirs_recorded, light_traffic

pytestmark = pytest.mark.testbed(
    topology="onion-failover.yaml",
    hold=["onions"],
    parameters={
        "instances": "3",
        "signal": "SIGKILL",
        "seconds": "20s",
        "republish": "60s",
        "limit": "120s",
        "pause": "2s",
        "every": "2s",
    },
)

HSDIR_PERIOD = 5.0
"""Seconds between two readings of the HSDirs."""


def test_onion_late_starter(lab: Lab, measure: Measure) -> None:
    """One late starter beside every number of instances less one, as often as repeats say."""
    onions: OnionServices = lab.subsystem("onions")
    service, *others = onions.services
    spec = onions.services[service]
    numbers, named = fitting(measure, "instances", spec.instances, least=2), signals(measure)
    for other in others[:1]:
        onions.start(other, progress=measure.progress)
    measure.watch(lab, spec.attach or "core", onions.instances(service))
    for repeat in range(1, measure.repeats + 1):
        for number in numbers:
            for signal in named:
                _trial(onions, measure, service, others[0] if others else "", number, signal, repeat)


def _trial(
    onions: OnionServices, measure: Measure, service: str, other: str, number: int, signal: str, repeat: int
) -> None:
    step = f"n{number}-{signal.lower()}-r{repeat}"
    names = onions.instances(service)[:number]
    onions.start(service, number - 1, "simultaneous", progress=measure.progress)
    onions.join(service, names[-1], progress=measure.progress)
    onions.forget_descriptors()
    detail = {"experiment": "late-starter", "n": number, "nodes": names, "late": names[-1], "signal": signal}
    detail |= {"republish": measure.seconds("republish"), "repeat": repeat, **EXPECTED}
    try:
        with (
            measure.step(step, **detail),
            hsdirs_recorded(onions, service, measure, step, period=HSDIR_PERIOD),
            light_traffic(onions, other),
            asking(onions, service, measure, step) as served,
        ):
            time.sleep(measure.seconds("seconds"))
            stopped = end(onions.lab, [names[-1]], signal_number(signal))
            moment(measure, step, "ended", names[-1], t=stopped)
            time.sleep(max(0.0, stopped + measure.seconds("republish") - time.monotonic()))
            again = time.monotonic()
            moment(measure, step, "republish", names[0], t=again)
            publish_again(onions, names[0], progress=measure.progress)
            moment(measure, step, "published", names[0])
            served.await_all(set(onions.network.clients), again, measure.seconds("limit"))
            time.sleep(measure.seconds("seconds") / 4)
    finally:
        onions.stop(service)
