"""Random faults on any topology: is everything as before once they are healed, and if not, which of them did it?

Faults are drawn by the seed. After they are healed, every node must reach what it reached, links and programs be as
they were, nothing of the faults be left, and after `down` the host be as before `up`. A schedule that fails is shrunk,
each trial on a fresh lab, and printed as a `timeline:` (docs/chaos.md).

    testbed run chaos                                                    60 seconds of faults on a small network
    testbed run chaos --repeats 5 --param seconds=20s                    five seeds, one after the other
    testbed run chaos --topology my.yaml --param faults=kill,link-down   any topology, two faults only
    testbed run chaos --param timeline=runs/chaos-.../timeline.yaml      that schedule again
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from testbed.faults.chaos.hunt import Hunt, read_timeline
from testbed.faults.chaos.trial import Bench
from testbed.measure.measure import Measure

pytestmark = pytest.mark.testbed(
    topology="chaos.yaml",
    parameters={
        "seconds": "60s",
        "faults": "all",
        "most": "3",
        "timeline": "",
        "trials": "40",
        "limit": "15min",
    },
)


def test_chaos(testbed_plan: tuple[Any, Any, Path], measure: Measure, request: pytest.FixtureRequest) -> None:
    """As many seeds as repeats say, from the topology's or the given one on; the first that fails is shrunk."""
    plan = testbed_plan[1]
    runtime = request.config.getoption("testbed_runtime")
    impair = request.config.getoption("testbed_impair")
    bench = Bench(plan, f"{plan.name}-chaos-{os.getpid()}", runtime, impair, measure.run.listener)
    hunt = Hunt(bench, measure, trials=measure.integers("trials")[0], seconds=measure.seconds("limit"))
    if measure.text("timeline"):
        hunt.go("again", read_timeline(Path(measure.text("timeline"))))
        return
    kinds = [] if measure.words("faults") == ["all"] else measure.words("faults")
    for seed in range(measure.seed, measure.seed + measure.repeats):
        hunt.draw(seed, seconds=measure.seconds("seconds"), kinds=kinds, most=measure.integers("most")[0])
