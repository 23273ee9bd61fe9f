"""The example of a plain lab runs as it stands, only shorter, and its report has what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed import scenario
from testbed.report.history import courses
from testbed.report.watches import watches

pytestmark = pytest.mark.root


def test_link_failover(state: Path, tmp_path: Path) -> None:
    outcome = scenario.run("link_failover", runs=tmp_path, parameters={"hold": "300ms", "faults": "detour,cut,degrade"})
    run = the_run(outcome)
    faults = courses(run.events("fault"))
    assert [fault.kind for fault in faults] == ["link-down", "one-way-cut", "degrade"]
    assert all(fault.verified is not None and fault.healed is not None for fault in faults)
    watched, loose = watches(run)
    assert [(watch.label, watch.by, watch.finished) for watch in watched] == [("client>server", "ping", True)] * 3
    assert loose == []
    assert watched[1].gaps
    text = (run.path / "report.html").read_text()
    for title in ("Faults and availability", "Probes", "Links as measured"):
        assert f"<h2>{title}</h2>" in text
