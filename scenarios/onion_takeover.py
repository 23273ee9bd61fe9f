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
from testbed.tor.measure.experiment import EXPECTED, Trial, first_service, fitting, moment, signals
from testbed.tor.measure.watch import asking, hsdirs_recorded, light_traffic
from testbed.tor.onion.instances import end, signal_number

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
    subject = first_service(lab, measure)
    numbers, named = fitting(measure, "instances", subject.spec.instances - 1), signals(measure)
    subject.start_other()
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for number in numbers:
            for publish in measure.words("publish"):
                for signal in named:
                    _take_over(subject.trial(number, publish, repeat), signal)


def _take_over(trial: Trial, signal: str) -> None:
    onions, measure, step = trial.onions, trial.measure, trial.named(trial.publish, signal.lower())
    *others, holder = onions.instances(trial.service)
    onions.join(trial.service, holder, progress=measure.progress)
    onions.forget_descriptors()
    nodes = [*others[: trial.number], holder]
    detail = {"experiment": "takeover", "n": trial.number, "nodes": nodes, "holder": holder}
    detail |= {"publish": trial.publish, "signal": signal, "repeat": trial.repeat, **EXPECTED}
    try:
        with (
            measure.step(step, **detail),
            hsdirs_recorded(trial, step, period=HSDIR_PERIOD),
            light_traffic(onions, trial.other),
            asking(trial, step) as served,
        ):
            time.sleep(measure.seconds("seconds"))
            ended = end(onions.lab, [holder], signal_number(signal))
            moment(measure, step, "ended", holder, t=ended)
            moment(measure, step, "republish")
            onions.start(trial.service, trial.number, trial.publish, progress=measure.progress)
            moment(measure, step, "published")
            served.await_all(set(onions.network.clients), ended, measure.seconds("limit"))
            time.sleep(measure.seconds("seconds") / 2)
    finally:
        onions.stop(trial.service)
