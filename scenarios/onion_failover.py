"""How soon do the others take over when one of N same-key instances dies? (DOI 10.3969/j.issn.1003-6970.2016.02.017)

The instances publish together; all clients fetch again and again, a new circuit each time. At half time the instance
that serves most clients is ended, by SIGKILL or SIGINT. Each client's own log of introductions is kept from that moment
until it has been served again: it tells why some clients need a second and others half a minute or more. ``pause`` lies
between two requests of a client, so up to that much of a recovery time is a client that did not ask.

    testbed run onion_failover                                       the paper's network, N = 2, 3, 6; minutes a repeat
    testbed run onion_failover --param instances=3 --param signal=SIGKILL --repeats 5
    testbed run onion_failover --param traffic=none,1s               without other traffic, and with more of it
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.load import ClientLoad, recorder
from testbed.measure.measure import Measure
from testbed.tor.measure.clientlog import IntroductionLogs
from testbed.tor.measure.experiment import (
    EXPECTED,
    Trial,
    first_service,
    fitting,
    moment,
    onion_target,
    record_introductions,
    signals,
    sockets,
    traffics,
)
from testbed.tor.measure.watch import REQUEST_TIMEOUT, Served, hsdirs_recorded, light_traffic
from testbed.tor.onion.instances import end, signal_number

pytestmark = pytest.mark.testbed(
    topology="onion-failover.yaml",
    hold=["onions"],
    parameters={
        "instances": "2,3,6",
        "signal": "SIGKILL,SIGINT",
        "publish": "simultaneous",
        "traffic": "5s",
        "seconds": "60s",
        "limit": "150s",
        "pause": "2s",
    },
)


def test_onion_failover(lab: Lab, measure: Measure) -> None:
    """End one instance of each number of instances, by each signal, as often as repeats say."""
    subject = first_service(lab, measure)
    numbers, named = fitting(measure, "instances", subject.spec.instances, least=2), signals(measure)
    beside, publish = traffics(measure, subject.other), measure.text("publish")
    subject.start_other()
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for number in numbers:
            for signal in named:
                for traffic, (other, pause) in beside.items():
                    _fail_over(subject.trial(number, publish, repeat), signal, traffic, other, pause)


def _fail_over(trial: Trial, signal: str, traffic: str, other: str, pause: float) -> None:
    onions, step = trial.onions, trial.named(signal.lower(), traffic)
    with trial.serving():
        onions.forget_descriptors()
        detail = {**trial.told, "signal": signal, "traffic": traffic, **EXPECTED}
        with (
            trial.measure.step(step, experiment="failover", **detail),
            hsdirs_recorded(trial, step),
            light_traffic(onions, other, pause=pause),
        ):
            _end_most_used(trial, step, signal_number(signal))


def _end_most_used(trial: Trial, step: str, signal: int) -> None:
    onions, measure, tor = trial.onions, trial.measure, trial.onions.network
    half, limit = measure.seconds("seconds") / 2, measure.seconds("limit")
    served = Served(recorder(measure.run, step))
    load = ClientLoad(
        sockets(tor),
        onion_target(onions, trial.service),
        duration=2 * half + limit,
        pause=measure.seconds("pause"),
        timeout=REQUEST_TIMEOUT,
        on_result=served,
        progress=measure.progress,
    )
    load.start()
    try:
        time.sleep(half)
        counts = served.by_instance().most_common(1)
        assert counts, "no client was served before the instance was to be ended"
        victim = counts[0][0]
        with IntroductionLogs(tor, tor.clients) as logs:
            since = end(onions.lab, [victim], signal)
            moment(measure, step, "ended", victim, t=since)
            never = served.await_all(set(tor.clients), since, limit)
            record_introductions(measure, step, logs, tor.clients, since, served.first_after(since))
        measure.progress.update("recovered", len(tor.clients) - len(never), len(tor.clients))
        time.sleep(max(0.0, since + half - time.monotonic()))
    finally:
        load.stop(grace=2)
        load.join()
