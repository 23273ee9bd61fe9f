"""Does a real pool do what the paper of 2016 (article number 2095-0020(2016)01-0032-06) says of its two experiments?

In virtual time, by the rules alone, and with real servers that are destroyed, made anew and checked, their agents,
store and dispatcher, in time that is compressed as the topology's `speed` says. Experiment 1 has no pseudo-random
sequence, experiment 2 has both. The report has the published figures beside ours.

    testbed run pool_paper                                          both experiments, a minute each
    testbed run pool_paper --param experiments=1 --repeats 3
"""

import time

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.pool.agents.clock import SECOND
from testbed.pool.lab.course import EVENT, course
from testbed.pool.lab.pools import Pool
from testbed.pool.report.published import EXPERIMENT_1, EXPERIMENT_2, HORIZON, MIGRATION_COST, SERVERS, Experiment
from testbed.pool.simulation.account import account
from testbed.pool.simulation.simulate import simulate

pytestmark = pytest.mark.testbed(
    topology="pool.yaml", hold=["pool"], parameters={"experiments": "1,2", "horizon": f"{HORIZON // SECOND}s"}
)


def test_pool_paper(lab: Lab, measure: Measure) -> None:
    """Each experiment, as often as repeats say."""
    horizon = int(measure.seconds("horizon") * SECOND)
    for repeat in range(1, measure.repeats + 1):
        for number in measure.integers("experiments"):
            _trial(lab, measure, _experiment(number), horizon, repeat)


def _trial(lab: Lab, measure: Measure, experiment: Experiment, horizon: int, repeat: int) -> None:
    whole: Pool = lab.subsystem("pool")["web"]
    spec = whole.spec if experiment.pseudo_random else whole.spec.model_copy(update={"sequence": None})
    pool = Pool(lab, whole.name, spec)
    with measure.step(f"{experiment.name}-r{repeat}".replace(" ", "-"), repeat=repeat):
        trace = simulate(SERVERS, experiment.schedule(), horizon)
        virtual = account(trace, cost=MIGRATION_COST)
        figures = {"efficiency": virtual.efficiency, "exposure": virtual.exposure / SECOND, "leaves": trace.leaves()}
        about = {"experiment": experiment.name, "repeat": repeat, "speed": spec.speed}
        facts = {"times": list(trace.times), "suspended": 0, "renewals": []}
        measure.event(EVENT, pool.name, way="computed in virtual time", **about, **figures, **facts)
        pool.start(measure.progress)
        try:
            while (now := pool.time()) < horizon:
                measure.progress.update(f"{experiment.name}, s", now // SECOND, horizon // SECOND)
                time.sleep(min(0.5, (horizon - now) / SECOND / pool.speed))
            seen = course(pool, horizon)
        finally:
            pool.stop()
        measure.event(EVENT, pool.name, way="measured on real servers", **about, **seen.plain())
    assert len(seen.left) == len(trace.migrations), f"{len(seen.left)} migrations, not {len(trace.migrations)}"


def _experiment(number: int) -> Experiment:
    if number not in (1, 2):
        raise TestbedError(f"parameter experiments: there is no experiment {number}", remedy="1 or 2")
    return EXPERIMENT_1 if number == 1 else EXPERIMENT_2
