"""The combined scenario of onion service and campus runs as it stands, only smaller, and its report has both."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed import scenario

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = Path(__file__).parents[2] / "topologies" / "campus-onion.yaml"


def test_campus_onion(state: Path, tmp_path: Path) -> None:
    """A provider's link goes down: users of the web site are sent another way, onion clients go on."""
    text = TOPOLOGY.read_text()
    for old, new in (("delay: 100ms, rate: 20mbit", "delay: 20ms"), ("relays: 8, clients: 3", "relays: 4, clients: 3")):
        assert old in text
        text = text.replace(old, new)
    small = tmp_path / "campus-onion.yaml"
    small.write_text(text)
    parameters = {"steps": "provider", "hold": "12s", "period": "500ms"}
    outcome = scenario.run(
        "campus_onion", runs=tmp_path / "runs", topology=small, parameters=parameters, fidelity=False
    )
    run = the_run(outcome)
    downloads = run.events("download")
    assert {event.node for event in downloads} == {"client1", "client2", "client3"}
    assert {event.detail["outcome"] for event in downloads} == {"ok"}
    assert "<h2>Onion service and web site</h2>" in (run.path / "report.html").read_text()
