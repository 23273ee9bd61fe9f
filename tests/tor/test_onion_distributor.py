"""The scenario that compares the ways to publish, in small: it runs, and its report says what was measured."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from publishing_world import NETWORK

from testbed.measure.store import RunReader
from testbed.report.blocks import Table
from testbed.scenario import run
from testbed.tor.distribute.document import Content, IntroPoint
from testbed.tor.measure.introductions import introductions
from testbed.tor.report import sections
from testbed.tor.report.trials import trials

TOPOLOGY = f"""
name: small-distributor
{NETWORK}
onions:
  shop: {{instances: 2, stagger: 3s, content: {{size: 32KiB}}}}
"""


@pytest.mark.root
@pytest.mark.tor
def test_two_ways_side_by_side(shared_network: Path, tmp_path: Path) -> None:
    """Naive copies: one serves all, and without it nobody. Distributed: both serve, and one is enough."""
    topology = tmp_path / "small.yaml"
    topology.write_text(TOPOLOGY)
    parameters = {"instances": "2", "publish": "naive,distributor", "fresh": "14", "seconds": "1s", "failover": "3s"}
    outcome = run("onion_distributor", topology=topology, parameters=parameters, runs=tmp_path / "runs")
    (path,) = outcome.runs
    reader = RunReader(path)
    assert reader.status == "passed"
    assert [step.name for step in reader.steps()] == [
        *("split-n2-naive-r1", "n2-naive-r1", "loss-n2-naive-without-r1"),
        *("split-n2-distributor-r1", "n2-distributor-r1"),
        *("loss-n2-distributor-with-r1", "loss-n2-distributor-without-r1"),
    ]
    served = {
        trial.word("publish"): Counter(fresh.instance for fresh in trial.fresh if fresh.ok)
        for trial in trials(reader, "split")
    }
    assert len(served["naive"]) == 1
    assert set(served["distributor"]) == {"shop1", "shop2"}, "by chance one of 8192 runs fails here"
    losses = {(t.word("publish"), t.word("redistributed")): t for t in trials(reader, "loss")}
    assert not any(fresh.ok for fresh in losses["naive", "no"].fresh)
    assert any(fresh.ok for fresh in losses["distributor", "yes"].fresh)
    assert set(losses) == {("naive", "no"), ("distributor", "yes"), ("distributor", "no")}
    made = {section.title: section for section in sections(reader)}
    assert {"Split of fresh clients", "Loss of an instance", "Result"} <= set(made)
    table = next(block for block in made["Split of fresh clients"].blocks if isinstance(block, Table))
    assert [row[:2] for row in table.rows] == [("naive", "2"), ("distributor", "2")]
    assert "published" in table.head


def content(*relays: str) -> Content:
    """A descriptor with introduction points at these relays."""
    return Content((), tuple(IntroPoint(relay, relay.encode(), "") for relay in relays), 1, b"", b"")


def test_load_on_introduction_points() -> None:
    """One descriptor everywhere: a third each. Two different ones with a relay in both: that one has the most."""
    same = introductions([content("A", "B", "C")] * 6)
    assert (same.relays, same.points) == (3, 3)
    assert same.most == pytest.approx(1 / 3)
    other = introductions([content("A", "B"), content("B", "C")])
    assert (other.relays, other.most) == (3, pytest.approx(1 / 2))
    with pytest.raises(ValueError, match="no descriptors"):
        introductions([])
