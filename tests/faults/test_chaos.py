"""Chaos for real: faults by chance leave a lab and the host as they were, and a fault that does not is singled out."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.lab.down import running
from testbed.measure.store import runs_in

pytestmark = pytest.mark.root
pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2]
TOPOLOGY = """\
name: pair
nodes: {a: {services: {nap: {command: [sleep, "300"]}}}, b: }
links: [[a, b]]
"""
SCENARIO = """
from typing import ClassVar
import pytest
from testbed.faults.base import Fault
from testbed.faults.chaos.hunt import Broken, Hunt, read_timeline
from testbed.faults.chaos.trial import Bench
from testbed.faults.fields import NodeName
pytestmark = pytest.mark.testbed(topology="pair.yaml")

class Stubborn(Fault):
    kind: ClassVar[str] = "stubborn"
    node: NodeName
    def inject(self, lab, memory):
        lab.exec(self.node, ["ip", "link", "set", "lo", "mtu", "1400"], check=True)
    def verify(self, lab, memory):
        return ""
    def heal(self, lab, memory):
        pass

def test_it(testbed_plan, measure, tmp_path):
    (tmp_path / "schedule.yaml").write_text(SCHEDULE)
    bench = Bench(testbed_plan[1], "pair-chaos", listener=measure.run.listener, settle=0.3)
    hunt = Hunt(bench, measure, trials=TRIALS, seconds=600)
    hunt.go("mixed", read_timeline(tmp_path / "schedule.yaml"))
"""
SCHEDULE = """\
timeline:
  - {at: +0s, fault: pause, node: a, for: 200ms}
  - {at: +0.2s, fault: stubborn, node: b, for: 500ms}
  - {at: +0.3s, fault: link-down, link: [a, b], for: 100ms}
"""


def _run(pytester: pytest.Pytester) -> tuple[pytest.RunResult, Path]:
    pytester.path.joinpath("pair.yaml").write_text(TOPOLOGY)
    head = f"SCHEDULE = {SCHEDULE!r}\nTRIALS = 40\n"
    path = pytester.makepyfile(test_it=head + SCENARIO)
    result = pytester.runpytest_subprocess(str(path), "--testbed-runs=runs", "-p", "no:cacheprovider")
    (run,) = runs_in(pytester.path / "runs")
    return result, run.path


def test_a_fault_that_heals_nothing_is_singled_out(state: Path, pytester: pytest.Pytester) -> None:
    """Of three faults one breaks something: the shrunk timeline has that one alone, as short as can be."""
    result, run = _run(pytester)
    result.assert_outcomes(failed=1)
    minimal = "timeline:\n  - {at: +0us, fault: stubborn, node: b, for: 100ms}\n"
    assert (run / "timeline.yaml").read_text() == minimal
    result.stdout.fnmatch_lines(["*node: b has in addition: interface lo * mtu 1400 up*", "*1 of 3 faults are enough*"])
    (reader,) = runs_in(run.parent)
    events = [event.detail for event in reader.events("chaos")]
    assert [event["timeline"] for event in events if event["phase"] == "minimal"] == [minimal]
    trials = [event for event in events if event["phase"] == "trial"]
    assert trials[0]["taken"] == 3
    assert any(event["faults"] and not event["violations"] for event in trials), "harmless ones passed by themselves"
    assert running() == []


def test_scenario(state: Path, pytester: pytest.Pytester) -> None:
    """The scenario itself, short: it passes, says what it drew, and leaves no lab."""
    options = ["--testbed-seed=1", "--testbed-param=seconds=3s", "--testbed-param=most=4", "--testbed-runs=runs"]
    result = pytester.runpytest_subprocess(str(PROJECT / "scenarios" / "chaos.py"), *options, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    (run,) = runs_in(pytester.path / "runs")
    events = [event.detail for event in run.events("chaos")]
    assert [event["phase"] for event in events] == ["schedule", "trial"]
    assert events[1]["taken"] >= 2
    assert (run.path / "schedule-seed-1.yaml").read_text() == events[0]["timeline"]
    assert not (run.path / "timeline.yaml").exists()
    assert {event.detail["phase"] for event in run.events("fault")} >= {"start", "verified", "healed"}
    assert running() == []
