"""The trade-off between continuity and exposure."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from testbed.pool.agents.clock import SECOND
from testbed.pool.report.figures import trade_off
from testbed.pool.report.published import SWEEP_PERIODS
from testbed.pool.simulation.sweep import PUBLISHED_SHARE, Setting, run, sweep
from testbed.report.figures import save

HOUR = 3600 * SECOND


def test_continuity_and_exposure_rise_with_the_period() -> None:
    """As in the paper's two curves, for its periods of 10 to 900 s."""
    points = sweep(seeds=range(8))
    assert [point.period for point in points] == [s * SECOND for s in (10, 60, 90, 120, 300, 600, 900)]
    for earlier, later in pairwise(points):
        assert earlier.continuity.value < later.continuity.value
        assert earlier.exposure.value < later.exposure.value
    assert points[-1].exposure.value < 250, "the timer bounds it"
    assert all(p.continuity.low is not None and p.exposure.low is not None for p in points)


def test_a_detection_sequence_flattens_the_curves() -> None:
    """Half of its bits, one every 120 s, are 1: where the pseudo-random ones are rarer than that, they hardly count."""
    setting = Setting(horizon=5 * HOUR, detection_share=PUBLISHED_SHARE)
    assert PUBLISHED_SHARE == 0.5
    with_it, without = sweep(seeds=range(4), setting=setting), sweep(seeds=range(4))
    for one, other in zip(with_it, without, strict=True):
        assert one.exposure.value < other.exposure.value
        assert one.continuity.value < other.continuity.value
    assert with_it[-1].exposure.value < 1.3 * with_it[3].exposure.value


def test_what_is_known_without_simulation() -> None:
    """Bits at half chance: the mean gap is twice the period, and the timer at 250 s cuts what is left over."""
    setting = Setting(horizon=400 * HOUR, timer=None, cost=0)
    (point,) = sweep([60 * SECOND], range(3), setting)
    assert point.exposure.value == pytest.approx(120, rel=0.03)
    assert point.continuity.value == 1


def test_a_pool_that_cannot_keep_up_says_so() -> None:
    setting = Setting(horizon=2 * HOUR, reinitialise=60 * SECOND)
    (fast,) = sweep([10 * SECOND], [1], setting)
    (slow,) = sweep([300 * SECOND], [1], setting)
    assert fast.suspended.value > 0.2
    assert slow.suspended.value == 0
    assert fast.suspended.low is None, "one seed gives no interval"


def test_a_seed_gives_the_same_run_again_and_another_another() -> None:
    setting = Setting(horizon=HOUR)
    assert run(60 * SECOND, 3, setting) == run(60 * SECOND, 3, setting)
    assert run(60 * SECOND, 3, setting) != run(60 * SECOND, 4, setting)


def test_without_seeds() -> None:
    with pytest.raises(ValueError, match="needs a seed"):
        sweep(seeds=[])


def test_figure(tmp_path: Path) -> None:
    setting = Setting(horizon=HOUR)
    curves = {"timer only": sweep(seeds=range(3), setting=setting), "one seed": sweep(seeds=[1], setting=setting)}
    figure = trade_off(curves)
    left, right = figure.axes
    assert [axes.get_xlabel() for axes in (left, right)] == ["pseudo-random period (s)"] * 2
    assert left.get_ylabel() == "service continuity (%)"
    assert right.get_ylabel() == "mean exposure (s)"
    drawn = left.containers[0].lines[0].get_xydata()
    assert [x for x, _ in drawn] == [period / SECOND for period in SWEEP_PERIODS]
    assert [y for _, y in drawn] == [100 * point.continuity.value for point in curves["timer only"]]
    assert "<svg" in save(figure, "sweep", tmp_path)
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
