"""Many instances with one key start at once when the one that served is gone: how long is the service down?

One instance serves. It is ended, and at the same moment ten or twenty others start, all with its key. They publish
with the same revision counter or nearly so; each HSDir takes whose descriptor comes first, refuses an equal or lower
counter, and takes a higher one. The dead time is measured by clients that ask again and again and by fresh clients.
What each HSDir holds, and with which revision counter, is read back all the time.

    testbed run onion_takeover                                       10 and 20 instances, about 3 minutes a repeat
    testbed run onion_takeover --param instances=20 --param publish=naive,simultaneous --repeats 3
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.experiment import EXPECTED, fitting, moment, signals
from testbed.tor.instances import end, signal_number
from testbed.tor.onions import OnionServices
from testbed.tor.watch import asking, hsdirs_recorded, light_traffic

pytestmark = pytest.mark.testbed(
    topology="onion-takeover.yaml",
    hold=["onions"],
    parameters={
        "instances": "10,20",
        "publish": "simultaneous",
        "signal": "SIGKILL",
        "seconds": "15s",
        "limit": "120s",
        "pause": "2s",
        "every": "1s",
    },
)

HSDIR_PERIOD = 3.0
"""Seconds between two readings of the HSDirs."""


def test_onion_takeover(lab: Lab, measure: Measure) -> None:
    """Every number of newcomers in every way to publish, as often as repeats say."""
    onions: OnionServices = lab.subsystem("onions")
    service, *others = onions.services
    spec = onions.services[service]
    numbers, named = fitting(measure, "instances", spec.instances - 1), signals(measure)
    for other in others[:1]:
        onions.start(other, progress=measure.progress)
    measure.watch(lab, spec.attach or "core", onions.instances(service))
    for repeat in range(1, measure.repeats + 1):
        for number in numbers:
            for publish in measure.words("publish"):
                for signal in named:
                    _trial(onions, measure, service, others[0] if others else "", number, publish, signal, repeat)


def _trial(
    onions: OnionServices,
    measure: Measure,
    service: str,
    other: str,
    number: int,
    publish: str,
    signal: str,
    repeat: int,
) -> None:
    step = f"n{number}-{publish}-{signal.lower()}-r{repeat}"
    names = onions.instances(service)
    holder, newcomers = names[-1], names[:number]
    onions.join(service, holder, progress=measure.progress)
    onions.forget_descriptors()
    detail = {"experiment": "takeover", "n": number, "nodes": [*newcomers, holder], "holder": holder}
    detail |= {"publish": publish, "signal": signal, "repeat": repeat, **EXPECTED}
    try:
        with (
            measure.step(step, **detail),
            hsdirs_recorded(onions, service, measure, step, period=HSDIR_PERIOD),
            light_traffic(onions, other),
            asking(onions, service, measure, step) as served,
        ):
            time.sleep(measure.seconds("seconds"))
            ended = end(onions.lab, [holder], signal_number(signal))
            moment(measure, step, "ended", holder, t=ended)
            moment(measure, step, "republish")
            onions.start(service, number, publish, progress=measure.progress)
            moment(measure, step, "published")
            served.await_all(set(onions.network.clients), ended, measure.seconds("limit"))
            time.sleep(measure.seconds("seconds") / 2)
    finally:
        onions.stop(service)
