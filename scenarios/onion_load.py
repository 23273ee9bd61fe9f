"""Do N copies of one onion service, with the same key, share its load? (2016, DOI 10.3969/j.issn.1003-6970.2016.02.017)

The network is brought up once; only the instances change between steps. In each step all clients fetch the same file
again and again, a new circuit each time, while the router counts what every instance sends, and the descriptor that
each responsible HSDir holds is read back from it. The report puts the shares and download times beside the published.

    testbed run onion_load                                           the paper's network, about 12 minutes a repeat
    testbed run onion_load --topology topologies/demo.yaml --param instances=1,3 --param seconds=8s
"""

import pytest

from testbed.lab.lab import Lab
from testbed.measure.load import recorder, run_load
from testbed.measure.measure import Measure
from testbed.tor.network import TorNetwork
from testbed.tor.onions import OnionServices
from testbed.tor.watch import hsdirs_recorded

pytestmark = pytest.mark.testbed(
    topology="onion-paper.yaml",
    hold=["onions"],
    parameters={"instances": "1,2,3,6", "publish": "naive,simultaneous", "seconds": "60s"},
)


def test_onion_load(lab: Lab, measure: Measure) -> None:
    """Measure every number of instances with every way to publish, as often as repeats say."""
    onions: OnionServices = lab.subsystem("onions")
    service, spec = next(iter(onions.services.items()))
    numbers = [number for number in measure.integers("instances") if number <= spec.instances]
    assert numbers, f"the topology has {spec.instances} instances; none of the wanted numbers fits"
    measure.watch(lab, spec.attach or "core", onions.instances(service))
    for repeat in range(1, measure.repeats + 1):
        for index, publish in enumerate(measure.words("publish")):
            for number in numbers:
                if number == 1 and index > 0:
                    continue  # one instance has nobody to publish at the same time as
                _step(lab, measure, service, number, publish, repeat)


def _step(lab: Lab, measure: Measure, service: str, number: int, publish: str, repeat: int) -> None:
    tor: TorNetwork = lab.subsystem("tor")
    onions: OnionServices = lab.subsystem("onions")
    spec = onions.services[service]
    name = f"n{number}-{publish}-r{repeat}"
    onions.start(service, number, publish, progress=measure.progress)
    onions.forget_descriptors()
    try:
        detail = {"instances": number, "publish": publish, "repeat": repeat}
        with measure.step(name, **detail), hsdirs_recorded(onions, service, measure, name):
            summary = run_load(
                {client: tor.socks_path(client) for client in tor.clients},
                onions.address(service),
                80,
                "/file",
                size=spec.content.size,
                seed=lab.plan.seed,
                duration=measure.seconds("seconds"),
                on_result=recorder(measure.run, name),
                progress=measure.progress,
            )
    finally:
        onions.stop(service)
    assert summary.ok > 0, f"no download came through in step {name}: {dict(summary.outcomes)}"
