"""The plugin tries links before it lets a scenario measure, and captures where it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.lab.down import running
from testbed.measure import pcapng
from testbed.measure.store import RunReader, runs_in
from testbed.pytest_plugin import EXIT_INVALID

pytestmark = pytest.mark.root
pytest_plugins = ["pytester"]

TOPOLOGY = "name: pair\nseed: 5\nnodes: {a: , b: }\nlinks: [{endpoints: [a, b], rate: 8mbit}]\n"
BODY = """
import pytest
pytestmark = pytest.mark.testbed(topology="pair.yaml"%s)
def test_it(lab, measure):
    assert measure.ping(lab, "a", "b", count=2, interval=0, timeout=10).lost == 0
"""
LYING = """
import testbed.measure.fidelity as fidelity
fidelity.TRIALS = 1
real = fidelity.rate_reason
fidelity.rate_reason = lambda wanted, *rest: real(wanted * 2, *rest)
"""
"""As if every link had half the rate it should have: what the check sees is real."""


@pytest.fixture
def scenario(state: Path, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a topology."""
    pytester.path.joinpath("pair.yaml").write_text(TOPOLOGY)
    return pytester


def run(scenario: pytest.Pytester, *options: str, **modules: str) -> tuple[pytest.RunResult, dict[str, RunReader]]:
    """Run scenarios, given as text by their names, in one pytest of its own; their runs by name."""
    scenario.makepyfile(**modules)
    result = scenario.runpytest_subprocess("--testbed-runs=runs", "-p", "no:cacheprovider", *options)
    assert running() == []
    return result, {run.manifest["scenario"]: run for run in runs_in(scenario.path / "runs")}


def test_links_are_tried_and_captured(scenario: pytest.Pytester) -> None:
    result, runs = run(scenario, "--testbed-pcap=a:eth0", "--testbed-pcap=b", test_it=BODY % "")
    result.assert_outcomes(passed=1)
    found = runs["test_it"]
    checks = found.events("fidelity")
    assert [(event.node, event.detail["ok"]) for event in checks] == [("a", True), ("b", True)]
    assert checks[0].t < found.events("probe")[0].t
    assert sorted(path.name for path in (found.path / "pcap").iterdir()) == ["a-eth0.pcapng", "b.pcapng"]
    for name in ("a-eth0.pcapng", "b.pcapng"):
        content = pcapng.read(found.path / "pcap" / name)
        assert content.whole
        assert sum(packet.length == 98 for packet in content.packets) == 4
    assert {event.node: event.detail["error"] for event in found.events("capture")} == {"a": "", "b": ""}


def test_a_link_that_lies_makes_the_run_invalid(scenario: pytest.Pytester) -> None:
    """Unless the scenario does not want its links tried."""
    result, runs = run(scenario, test_lie=LYING + BODY % "", test_off=LYING + BODY % ", fidelity=False")
    result.assert_outcomes(passed=2)
    assert result.ret == EXIT_INVALID
    assert runs["test_lie"].invalid[0].startswith("link a:eth0--b:eth0, from a to b: rate is ")
    assert [event.detail["ok"] for event in runs["test_lie"].events("fidelity")] == [False, False]
    assert (runs["test_off"].invalid, runs["test_off"].events("fidelity")) == ([], [])


def test_switched_off_and_nowhere_to_capture_to(scenario: pytest.Pytester) -> None:
    """No links are tried; a module without a run cannot have the capture that was asked for, and says so."""
    no_run = BODY.replace(", measure", "").replace("measure.ping", "print") % ""
    result, runs = run(
        scenario, "--testbed-no-fidelity", "--testbed-pcap=a", test_it=LYING + BODY % "", test_no_run=no_run
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*records no run*"])
    assert (runs["test_it"].invalid, runs["test_it"].events("fidelity")) == ([], [])


def test_a_capture_that_cannot_be(scenario: pytest.Pytester) -> None:
    """One clear message, the lab is gone, and the run says why it failed."""
    result, runs = run(scenario, "--testbed-pcap=a:eth5", test_it=BODY % "")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*node 'a' has no interface 'eth5'*"])
    assert runs["test_it"].manifest["status"] == "failed"
