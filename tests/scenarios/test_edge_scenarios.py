"""The edge's scenarios in small: modes beside each other, and what dies. No time is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed.edge.report import compare, failover
from testbed.lab.down import running
from testbed.measure.reader import RunReader
from testbed.report.blocks import Table
from testbed.report.numbers import NONE
from testbed.scenario import run

pytestmark = pytest.mark.root
SMALL = Path(__file__).parent / "small-campus.yaml"


def recorded(tmp_path: Path, name: str, **parameters: str) -> RunReader:
    outcome = run(name, topology=SMALL, parameters=parameters, runs=tmp_path / "runs")
    assert running() == []
    return the_run(outcome)


def rows(found: RunReader, name: str) -> list[list[str]]:
    sections = {"compare": compare.sections, "failover": failover.sections}[name](found)
    (table,) = [block for block in sections[0].blocks if isinstance(block, Table) and block.console]
    return [list(row) for row in table.rows]


def test_modes_beside_each_other(state: Path, tmp_path: Path) -> None:
    found = recorded(tmp_path, "edge_compare", modes="none,redirect")
    cells = {(cell.mode, cell.network, cell.path): cell for cell in compare.cells(found)}
    assert len(cells) == 12
    assert all(visit.detail["outcome"] == "ok" for cell in cells.values() for visit in cell.visits)
    assert cells["none", "telecom", "/bulk"].crossed > 200 * 1024
    assert cells["redirect", "telecom", "/bulk"].crossed < 20 * 1024
    (visit,) = cells["redirect", "unicom", "/page"].visits
    assert visit.detail["place"] == "123.112.200.2:8001"
    assert [way[-1] for way in visit.detail["ways"]] == ["redirector", "web1"]
    assert [(row[0], row[1]) for row in rows(found, "compare")] == [
        ("redirect, telecom: /page", "below 10 %"),
        ("redirect, telecom: /bulk", "below 10 %"),
        ("redirect, unicom: /page", "below 10 %"),
        ("redirect, unicom: /bulk", "below 10 %"),
        ("redirect, cernet: /page", NONE),
        ("redirect, cernet: /bulk", NONE),
    ]
    assert {"edge-latency", "edge-ways-none", "edge-ways-redirect"} <= {
        path.stem for path in (found.path / "figures").glob("*.svg")
    }


def test_what_dies(state: Path, tmp_path: Path) -> None:
    found = recorded(tmp_path, "edge_failover", faults="silent,redirector", hold="1500ms", timeout="6s")
    silent, killed = failover.trials(found)
    for trial in (silent, killed):
        assert trial.noticed is not None
        assert trial.own()[-1].detail["outcome"] == "ok"
        assert all(fetch.detail["outcome"] == "ok" for fetch in trial.others())
    assert silent.back is not None
    assert any(fetch.detail["place"] == "www.campus.test" for fetch in silent.own())
    assert [row[0] for row in rows(found, "failover")] == ["provider's link silent", "listener's nginx killed"]
    assert "edge-failover" in {path.stem for path in (found.path / "figures").glob("*.svg")}
