"""The scenarios of rotating pools run as they stand, only shorter, and their reports have what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed import scenario
from testbed.pool.lab.course import EVENT, FAILOVER

pytestmark = pytest.mark.root


def test_pool_paper(state: Path, tmp_path: Path) -> None:
    outcome = scenario.run("pool_paper", runs=tmp_path, parameters={"experiments": "2", "horizon": "450s"})
    run = the_run(outcome)
    computed, measured = (event.detail for event in run.events(EVENT))
    assert len(computed["times"]) == len(measured["times"]) == 3
    assert computed["leaves"]["A"] == measured["leaves"]["web1"]
    assert "<h2>Rotating pool</h2>" in (run.path / "report.html").read_text()


def test_pool_failover(state: Path, tmp_path: Path) -> None:
    outcome = scenario.run("pool_failover", runs=tmp_path, parameters={"states": "service"})
    run = the_run(outcome)
    (died,) = run.events(FAILOVER)
    assert died.detail["state"] == "service"
    assert died.detail["to"] != died.node
    assert "<h2>Servers that died</h2>" in (run.path / "report.html").read_text()
