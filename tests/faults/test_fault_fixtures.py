"""The fixtures ``faults`` and ``timeline`` as a scenario's author meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.lab.down import running
from testbed.measure.store import runs_in

pytestmark = pytest.mark.root
pytest_plugins = ["pytester"]

TOPOLOGY = """\
name: pair
nodes: {a: {services: {nap: {command: [sleep, "300"]}}}, b: }
links: [[a, b]]
timeline:
  - {at: +0.1s, fault: link-down, link: [a, b], for: 0.2s}
  - {at: +0.2s, fault: pause, node: a}
"""
SCENARIO = """
import pytest
from testbed.faults.faults import Faults
from testbed.faults.kill import Kill
from testbed.faults.link_down import LinkDown
pytestmark = pytest.mark.testbed(topology="pair.yaml")

def reaches(lab):
    return lab.exec("a", ["ping", "-c1", "-W1", str(lab.plan.address("b"))]).returncode == 0

def test_leaves_a_fault(lab, faults, measure):
    faults.inject(LinkDown(link=("a", "b")))
    assert not reaches(lab)
    assert 0

def test_finds_none(lab, faults):
    assert faults.entries() == []
    assert reaches(lab)
    with faults.active(Kill(node="a")):
        pass

def test_flap(lab, faults):
    from testbed.faults.link_flap import LinkFlap
    faults.inject(LinkFlap(link=("a", "b"), period="60s", count=2))

def test_timeline(lab, timeline):
    assert [one.planned.fault for one in timeline.run(30)] == ["link-down", "pause"]
    assert Faults(lab).entries() == []

def test_timeline_that_is_left(lab, timeline):
    timeline.start()
    assert 0

def test_afterwards(lab):
    assert Faults(lab).entries() == []
    assert reaches(lab)
"""


def test_faults_end_with_their_test(state: Path, pytester: pytest.Pytester) -> None:
    """However it ends; and the run has them with their times."""
    pytester.path.joinpath("pair.yaml").write_text(TOPOLOGY)
    path = pytester.makepyfile(test_it=SCENARIO)
    result = pytester.runpytest_subprocess(str(path), "--testbed-runs=runs", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, failed=2)
    assert running() == []
    (run,) = runs_in(pytester.path / "runs")
    phases = [(event.detail["fault"], event.detail["phase"]) for event in run.events("fault")]
    assert phases[:6] == [(kind, phase) for kind in ("link-down", "kill") for phase in ("start", "verified", "healed")]
    flaps = [event.detail for event in run.events("fault") if event.detail.get("parent", "").startswith("link-flap")]
    assert [flap["phase"] for flap in flaps] == ["start", "verified", "healed"], "also what a helper did"
    assert {event.detail["phase"] for event in run.events("timeline")} >= {"start", "injected", "end"}


def test_no_timeline(state: Path, pytester: pytest.Pytester) -> None:
    """It is said what the topology lacks."""
    pytester.path.joinpath("pair.yaml").write_text(TOPOLOGY.partition("timeline:")[0])
    path = pytester.makepyfile(test_it=SCENARIO.partition("def reaches")[0] + "def test_it(lab, timeline):\n    pass\n")
    result = pytester.runpytest_subprocess(str(path), "--testbed-runs=runs", "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs a section `timeline`*"])
