"""Do N copies of one onion service, with the same key, share its load? (2016, DOI 10.3969/j.issn.1003-6970.2016.02.017)

The network is brought up once; only the instances change between steps. In each step all clients fetch the same file
again and again, a new circuit each time, while the router counts what every instance sends, and the descriptor that
each responsible HSDir holds is read back from it. The report puts the shares and download times beside the published.

    testbed run onion_load                                           the paper's network, about 12 minutes a repeat
    testbed run onion_load --topology topologies/demo.yaml --param instances=1,3 --param seconds=8s
"""

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.tor.measure.experiment import first_service, fitting
from testbed.tor.measure.watch import load_step

pytestmark = pytest.mark.testbed(
    topology="onion-paper.yaml",
    hold=["onions"],
    parameters={"instances": "1,2,3,6", "publish": "naive,simultaneous", "seconds": "60s"},
)


def test_onion_load(lab: Lab, measure: Measure) -> None:
    """Measure every number of instances with every way to publish, as often as repeats say."""
    subject = first_service(lab, measure)
    numbers = fitting(measure, "instances", subject.spec.instances)
    subject.watch()
    for repeat in range(1, measure.repeats + 1):
        for index, publish in enumerate(measure.words("publish")):
            for number in numbers:
                if number == 1 and index > 0:
                    continue  # one instance has nobody to publish at the same time as
                trial = subject.trial(number, publish, repeat)
                with trial.serving():
                    load_step(trial)
