"""An instance that starts late takes every HSDir, and when it dies the service is down although the others live.

(DOI 10.3969/j.issn.1003-6970.2016.02.017.) The first instances publish together, one more publishes after them: its
descriptor replaces theirs. It is stopped. The others do not notice: tor publishes again after 60 to 120 minutes. That
is too long for an experiment, so after ``republish`` one survivor is made to publish, by a restart of its tor. The hole
is measured by clients that ask again and again, and by fresh clients, which have no stale descriptor.

    testbed run onion_late_starter                                   the paper's network, about 4 minutes a repeat
    testbed run onion_late_starter --param instances=3 --param republish=90s --repeats 5
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.measure.experiment import EXPECTED, Trial, first_service, fitting, moment, signals
from testbed.tor.measure.watch import asking, hsdirs_recorded, light_traffic
from testbed.tor.onion.instances import end, publish_again, signal_number

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
    subject = first_service(lab, measure)
    numbers, named = fitting(measure, "instances", subject.spec.instances, least=2), signals(measure)
    subject.start_other()
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for number in numbers:
            for signal in named:
                _take(subject.trial(number, "simultaneous", repeat), signal)


def _take(trial: Trial, signal: str) -> None:
    onions, measure, step = trial.onions, trial.measure, trial.named(signal.lower())
    *early, late = onions.instances(trial.service)[: trial.number]
    onions.start(trial.service, len(early), trial.publish, progress=measure.progress)
    onions.join(trial.service, late, progress=measure.progress)
    onions.forget_descriptors()
    detail = {"experiment": "late-starter", "n": trial.number, "nodes": [*early, late], "late": late, "signal": signal}
    detail |= {"republish": measure.seconds("republish"), "repeat": trial.repeat, **EXPECTED}
    try:
        with (
            measure.step(step, **detail),
            hsdirs_recorded(trial, step, period=HSDIR_PERIOD),
            light_traffic(onions, trial.other),
            asking(trial, step) as served,
        ):
            time.sleep(measure.seconds("seconds"))
            stopped = end(onions.lab, [late], signal_number(signal))
            moment(measure, step, "ended", late, t=stopped)
            time.sleep(max(0.0, stopped + measure.seconds("republish") - time.monotonic()))
            again = time.monotonic()
            moment(measure, step, "republish", early[0], t=again)
            publish_again(onions, early[0], progress=measure.progress)
            moment(measure, step, "published", early[0])
            served.await_all(set(onions.network.clients), again, measure.seconds("limit"))
            time.sleep(measure.seconds("seconds") / 4)
    finally:
        onions.stop(trial.service)
