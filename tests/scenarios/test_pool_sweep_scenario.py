"""The scenario of the sweep runs as it stands, only shorter, and without root."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed import scenario
from testbed.measure.reader import RunReader
from testbed.pool.agents.clock import SECOND
from testbed.pool.report import sweep as report_sweep
from testbed.pool.simulation.sweep import Setting, sweep
from testbed.report.blocks import Table


def test_pool_sweep(tmp_path: Path) -> None:
    """Points are those of the sweep for the same seeds, and in the report with their spread."""
    parameters = {"periods": "60,10", "seeds": "3", "hours": "2"}
    outcome = scenario.run("pool_sweep", runs=tmp_path, seed=5, parameters=parameters)
    run = the_run(outcome)
    found = [event.detail for event in run.events(report_sweep.EVENT)]
    both = [(name, period * SECOND) for name in report_sweep.POOLS for period in (10, 60)]
    assert [(point["pool"], point["period"]) for point in found] == both
    points = sweep([10 * SECOND, 60 * SECOND], (5, 6, 7), Setting(horizon=2 * 3600 * SECOND))
    assert [point["exposure"]["value"] for point in found[:2]] == [point.exposure.value for point in points]
    (section,) = report_sweep.sections(run)
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    assert [row[:3] for row in table.rows[:2]] == [("timer only", "10 s", "-"), ("timer only", "60 s", "rises")]
    exposure = points[0].exposure
    assert exposure.low is not None
    assert table.rows[0][5:7] == (f"{exposure.value:.1f}", f"\u00b1 {exposure.value - exposure.low:.1f}")
    assert "<h2>Rotating pool: the sweep</h2>" in (run.path / "report.html").read_text()
    assert "timer only: continuity rises at every step; exposure rises at every step." in section_text(section)
    assert list(run.path.rglob("pool-sweep.svg"))


def section_text(section: report_sweep.Section) -> str:
    return " ".join(block.text for block in section.blocks if isinstance(block, report_sweep.Text))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seeds": "0"}, "parameter seeds: '0' is not one whole number above 0"),
        ({"hours": "1,2"}, "parameter hours: '1,2' is not one whole number above 0"),
        ({"periods": "0,10"}, "parameter periods: '0,10'"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, parameters: dict[str, str], message: str) -> None:
    outcome = scenario.run("pool_sweep", runs=tmp_path, parameters=parameters)
    run = RunReader(outcome.runs[0])
    assert run.status == "failed"
    (failure,) = run.events("failure")
    assert message in failure.detail["message"]
