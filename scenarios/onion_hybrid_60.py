"""Sixty instances behind one onion address: six mixed descriptors, one on each responsible HSDir (UCL, 2015).

OnionBalance mixes introduction points of many instances in one descriptor, ten instances at most as it was described.
With another mix on each of the six HSDirs sixty can be reached. That was proposed and never run. Here sixty real tors
with a web server each run it, and fresh clients, which pick an HSDir and an introduction point by chance, fetch until
every instance has served one of them.

    testbed run onion_hybrid_60 --runtime process                    sixty instances, a few minutes
    testbed run onion_hybrid_60 --param instances=12 --param fresh=120 --repeats 3
"""

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.measure.experiment import Trial, first_service, fitting, one_number
from testbed.tor.measure.freshprobe import RecordedFreshClients
from testbed.tor.measure.watch import record_hsdirs

pytestmark = pytest.mark.testbed(
    topology="onion-hybrid.yaml",
    hold=["onions"],
    parameters={"instances": "60", "publish": "hybrid", "fresh": "420", "most": "1200", "parallel": "4"},
)


def test_onion_hybrid_60(lab: Lab, measure: Measure, fresh_clients: RecordedFreshClients) -> None:
    """All instances are reached; by how many fresh clients is in the report."""
    subject = first_service(lab, measure)
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for number in fitting(measure, "instances", subject.spec.instances):
            for publish in measure.words("publish"):
                _coverage(subject.trial(number, publish, repeat), fresh_clients)


def _coverage(trial: Trial, fresh_clients: RecordedFreshClients) -> None:
    """At least ``fresh`` clients, so that the curve can be compared, and on until all are reached or ``most`` came."""
    measure, step = trial.measure, trial.named(trial.publish)
    least, most, parallel = (one_number(measure, name) for name in ("fresh", "most", "parallel"))
    count = 0
    with trial.serving():
        missing = set(trial.running)
        with measure.step(step, experiment="coverage", **trial.told):
            record_hsdirs(trial, step)
            while count < least or (missing and count < most):
                batch = least if count < least else 60
                fetched = fresh_clients(batch, step=step, service=trial.service, parallel=parallel)
                count += batch
                missing -= {item.instance for item in fetched if item.ok}
                reached = trial.number - len(missing)
                measure.progress.update("instances reached", reached, trial.number, f"by {count} clients")
            record_hsdirs(trial, step)
    assert not missing or trial.publish in _UNEVEN, (
        f"{count} fresh clients reached all but {', '.join(sorted(missing))}"
    )


_UNEVEN = ("naive", "simultaneous", "late")
"""Ways to publish that are not meant to make every instance reachable."""
