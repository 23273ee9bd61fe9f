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


def run(scenario: pytest.Pytester, body: str, *options: str) -> tuple[pytest.RunResult, list[RunReader]]:
    """Run a scenario's text in a pytest of its own; its runs."""
    path = scenario.makepyfile(test_it=body)
    result = scenario.runpytest_subprocess(str(path), "--testbed-runs=runs", "-p", "no:cacheprovider", *options)
    assert running() == []
    return result, runs_in(scenario.path / "runs")


def test_links_are_tried_and_captured(scenario: pytest.Pytester) -> None:
    result, (found,) = run(scenario, BODY % "", "--testbed-pcap=a:eth0", "--testbed-pcap=b")
    result.assert_outcomes(passed=1)
    checks = found.events("fidelity")
    assert [(event.node, event.detail["ok"]) for event in checks] == [("a", True), ("b", True)]
    assert checks[0].t < found.events("probe")[0].t
    assert sorted(path.name for path in (found.path / "pcap").iterdir()) == ["a-eth0.pcapng", "b.pcapng"]
    for name in ("a-eth0.pcapng", "b.pcapng"):
        content = pcapng.read(found.path / "pcap" / name)
        assert content.whole
        assert sum(packet.length == 98 for packet in content.packets) == 4
    assert {event.node: event.detail["error"] for event in found.events("capture")} == {"a": "", "b": ""}
    rtts = [sample for sample in found.samples("ping_rtt") if sample.node == "a>b"]
    assert len(rtts) == 2


def test_a_link_that_lies_makes_the_run_invalid(scenario: pytest.Pytester) -> None:
    result, (found,) = run(scenario, LYING + BODY % "")
    result.assert_outcomes(passed=1)
    assert result.ret == EXIT_INVALID
    assert found.invalid[0].startswith("link a:eth0--b:eth0, from a to b: rate is ")
    assert [event.detail["ok"] for event in found.events("fidelity")] == [False, False]


@pytest.mark.parametrize(("marker", "option"), [(", fidelity=False", "-q"), ("", "--testbed-no-fidelity")])
def test_it_can_be_switched_off(scenario: pytest.Pytester, marker: str, option: str) -> None:
    result, (found,) = run(scenario, LYING + BODY % marker, option)
    result.assert_outcomes(passed=1)
    assert found.events("fidelity") == []
    assert found.invalid == []


def test_a_capture_that_cannot_be(scenario: pytest.Pytester) -> None:
    """One clear message, the lab is gone, and the run says why it failed."""
    result, (found,) = run(scenario, BODY % "", "--testbed-pcap=a:eth5")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*node 'a' has no interface 'eth5'*"])
    assert found.manifest["status"] == "failed"
    result, _ = run(scenario, BODY.replace(", measure", "").replace("measure.ping", "print") % "", "--testbed-pcap=a")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*records no run*"])
