"""How do continuity and exposure of a rotating pool depend on how often its sequence has a bit?

The sweep of the paper of 2016 (article number 2095-0020(2016)01-0032-06): its pool of three servers with a timer of
250 s and migrations of 7.3 s, in virtual time, by the rules alone. Once with pseudo-random sequence and timer only,
once with a detection sequence like that of its experiments as well. Each seed draws its own sequences and counts as one
repeat. The topology only names the run: no lab is brought up.

    testbed run pool_sweep                                         20 seeds of ten hours, some seconds
    testbed run pool_sweep --param seeds=100 --param hours=24
    testbed run pool_sweep --param reinitialise=60s                a pool that is slow to make its servers anew
"""

from dataclasses import asdict

import pytest

from testbed.errors import TestbedError
from testbed.measure.measure import Measure
from testbed.pool.agents.clock import SECOND
from testbed.pool.report.published import SWEEP_PERIODS
from testbed.pool.report.sweep import EVENT, POOLS
from testbed.pool.simulation.sweep import Setting, sweep

PERIODS = ",".join(str(period // SECOND) for period in SWEEP_PERIODS)

pytestmark = pytest.mark.testbed(
    topology="pool.yaml", parameters={"periods": PERIODS, "seeds": "20", "hours": "10", "reinitialise": "0s"}
)


def test_pool_sweep(measure: Measure) -> None:
    """A point for each pool and period."""
    periods, hours = measure.integers("periods"), _one(measure, "hours")
    if not periods or min(periods) < 1:
        raise TestbedError(f"parameter periods: {measure.text('periods')!r}", remedy="whole seconds above 0: 10,60")
    count = _one(measure, "seeds") * measure.repeats
    seeds = range(measure.seed, measure.seed + count)
    reinitialise = round(measure.seconds("reinitialise") * SECOND)
    for name, share in POOLS.items():
        setting = Setting(horizon=hours * 3600 * SECOND, detection_share=share, reinitialise=reinitialise)
        for done, period in enumerate(sorted(set(periods)), start=1):
            (point,) = sweep([period * SECOND], seeds, setting)
            measure.event(EVENT, pool=name, hours=hours, reinitialise=reinitialise, seeds=list(seeds), **asdict(point))
            measure.progress.update(name, done, len(set(periods)))


def _one(measure: Measure, name: str) -> int:
    numbers = measure.integers(name)
    if len(numbers) != 1 or numbers[0] < 1:
        text = measure.text(name)
        raise TestbedError(f"parameter {name}: {text!r} is not one whole number above 0", remedy=f"write {name}=10")
    return numbers[0]
