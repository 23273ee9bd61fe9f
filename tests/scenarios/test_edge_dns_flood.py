"""The scenarios on smart DNS and on floods run as they stand, only smaller, and their reports have it all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from outcomes import the_run

from testbed import scenario
from testbed.edge.measure.experiment import fetches
from testbed.lab.programs import find

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]


def smaller(name: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """A topology of the project with short delays, so that nobody has to wait for a slow exchange."""
    text = (ROOT / "topologies" / name).read_text()
    for old, new in (("exchange: {rate: 20mbit}", "exchange: {delay: 10ms}"), *changes):
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path


def test_edge_dns_faults(state: Path, tmp_path: Path) -> None:
    topology = smaller("campus-dns.yaml", tmp_path)
    outcome = scenario.run("edge_dns_faults", runs=tmp_path / "runs", topology=topology, fidelity=False)
    run = the_run(outcome)
    visits = run.events("edge-visit")
    assert len(visits) == 2 * 6 * 3
    astray = Counter(event.node for event in visits if event.detail["entry"] != event.detail["network"])
    # everybody's lib both times; the rest of those whose resolver sits elsewhere, until the subnet is told
    assert astray == {"telecom-1": 2, "unicom-1": 2, "unicom-2": 4, "mobile-1": 2, "mobile-2": 4}
    text = (run.path / "report.html").read_text()
    assert "<h2>Names and ways</h2>" in text
    assert "4 of 6" in text


def test_edge_flood(state: Path, tmp_path: Path) -> None:
    topology = smaller(
        "campus-flood.yaml", tmp_path, ("connections: 512", "connections: 128"), ("slow: 2s", "slow: 1s")
    )
    parameters = {"count": "100", "calm": "500ms", "hold": "3s", "period": "300ms"}
    outcome = scenario.run(
        "edge_flood", runs=tmp_path / "runs", topology=topology, parameters=parameters, fidelity=False
    )
    run = the_run(outcome)
    without, filtered = (fetches(run, name) for name in ("flood-off-r1", "flood-on-r1"))
    assert any(fetch.outcome != "ok" for fetch in without)
    assert all(fetch.outcome == "ok" for fetch in filtered if fetch.network != "telecom")
    assert [event.node for event in run.events("edge-flood")] == ["telecom"] * 2
    assert "<h2>Flood and filters</h2>" in (run.path / "report.html").read_text()


def test_edge_scale(state: Path, tmp_path: Path) -> None:
    if not all(find(program) for program in ("wrk", "haproxy")):
        pytest.skip("needs wrk and haproxy")
    parameters = {"sites": "50", "prefixes": "100", "changes": "2", "rounds": "1", "seconds": "1s", "connections": "8"}
    run = the_run(scenario.run("edge_scale", runs=tmp_path / "runs", parameters=parameters))
    (sized,) = run.events("edge-sizes")
    assert sized.detail["sites"] == 50
    assert len(run.events("edge-change")) == 2
    assert len({(event.detail["server"], event.detail["connection"]) for event in run.events("edge-load")}) == 6
    assert "<h2>Scale</h2>" in (run.path / "report.html").read_text()
