"""The pytest plugin as a scenario's author meets it: fixtures, options, what is left behind and what is recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.lab.down import down_all, running
from testbed.measure.store import RunReader, runs_in
from testbed.pytest_plugin import EXIT_INVALID

pytestmark = pytest.mark.root
pytest_plugins = ["pytester"]

TOPOLOGY = """\
name: pair
seed: 5
nodes: {a: , b: }
links: [[a, b]]
"""
HEAD = """
import pytest
pytestmark = pytest.mark.testbed(topology="pair.yaml", parameters={"seconds": "1s", "sizes": "1,2"})
"""


@pytest.fixture
def scenario(state: Path, pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with a topology, and a state folder that pytest in another process uses too."""
    pytester.path.joinpath("pair.yaml").write_text(TOPOLOGY)
    return pytester


def run(scenario: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """Run a scenario's text in a pytest of its own, with its runs in ``runs``."""
    path = scenario.makepyfile(test_it=HEAD + body)
    return scenario.runpytest_subprocess(str(path), "--testbed-runs=runs", "-p", "no:cacheprovider", *options)


def only_run(scenario: pytest.Pytester) -> RunReader:
    """The one run that was recorded."""
    (found,) = runs_in(scenario.path / "runs")
    return found


def test_lab_and_run(scenario: pytest.Pytester) -> None:
    """The lab is up in the test and gone afterwards; the run has its events, parameters, repeats and a report."""
    result = run(
        scenario,
        """
def test_ping(lab, measure):
    assert lab.exec("a", ["ping", "-c1", "-W2", str(lab.plan.address("b"))]).returncode == 0
    assert (measure.seconds("seconds"), measure.integers("sizes")) == (2.0, [1, 2])
    assert (measure.repeats, measure.seed) == (3, 9)
    with measure.step("one"):
        measure.event("seen", "a", answer=42)
def test_again(lab):
    assert lab.exec("b", ["true"]).returncode == 0
""",
        "--testbed-repeats=3",
        "--testbed-seed=9",
        "--testbed-param=seconds=2s",
    )
    result.assert_outcomes(passed=2)
    assert running() == []
    found = only_run(scenario)
    assert found.manifest["status"] == "passed"
    assert found.manifest["seed"] == 9
    assert found.manifest["parameters"] == {"seconds": "2s", "sizes": "1,2"}
    assert [event.detail["answer"] for event in found.events("seen")] == [42]
    assert [step.name for step in found.steps()] == ["one"]
    assert "network" in {event.detail["stage"] for event in found.events("stage")}
    assert "pair" in (found.path / "report.html").read_text()


def test_failure_is_recorded(scenario: pytest.Pytester) -> None:
    """A failed test makes a failed run, with the message in it, and the lab goes all the same."""
    result = run(scenario, "def test_bad(lab, measure):\n    assert 1 == 2, 'as planned'\n")
    result.assert_outcomes(failed=1)
    assert running() == []
    found = only_run(scenario)
    assert found.manifest["status"] == "failed"
    assert "as planned" in found.events("failure")[0].detail["message"]


def test_lab_that_cannot_start(scenario: pytest.Pytester) -> None:
    """A lab that does not come up gives one clear message without a traceback, and the run has it."""
    scenario.path.joinpath("pair.yaml").write_text(
        TOPOLOGY.replace("a: ,", "a: {services: {x: {command: ['false']}}},")
    )
    result = run(scenario, "def test_it(lab, measure):\n    pass\n")
    result.assert_outcomes(errors=1)
    output = result.stdout.str()
    assert "service x ended" in output
    assert "Traceback" not in output
    assert "service x ended" in only_run(scenario).events("failure")[0].detail["message"]
    assert running() == []


def test_fresh_clients_need_an_onion_service(scenario: pytest.Pytester) -> None:
    """In a topology without one there is one clear message."""
    result = run(scenario, "def test_it(fresh_clients):\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fresh clients fetch from onion services*", "*section `onions`*"])
    assert "Traceback" not in result.stdout.str()


def test_unknown_parameter(scenario: pytest.Pytester) -> None:
    """A misspelt parameter is refused with the known ones, before anything is started."""
    result = run(scenario, "def test_it(lab, measure):\n    pass\n", "--testbed-param=second=2s")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it has no parameter 'second'*", "*it has: seconds, sizes*"])
    assert not (scenario.path / "runs").exists()


def test_invalid_run_shows_in_the_exit_status(scenario: pytest.Pytester) -> None:
    """A run that was marked INVALID says so in the summary and by the exit status."""
    result = run(scenario, "def test_it(lab, measure):\n    measure.run.invalid('the link lied')\n")
    result.assert_outcomes(passed=1)
    assert result.ret == EXIT_INVALID
    result.stdout.fnmatch_lines(["*INVALID: the link lied*"])


def test_keep(scenario: pytest.Pytester) -> None:
    """With --testbed-keep the lab stays, whole, and the message says how to remove it."""
    result = run(scenario, "def test_it(lab):\n    pass\n", "--testbed-keep")
    result.assert_outcomes(passed=1)
    (record,) = running()
    assert record.alive()
    assert f"testbed down {record.name}" in result.stdout.str()
    assert down_all() == [record.name]


def test_pause_on_error(scenario: pytest.Pytester) -> None:
    """--testbed-pause-on-error says what failed while the lab is up; without a terminal it goes on."""
    result = run(scenario, "def test_it(lab):\n    assert False, 'look here'\n", "--testbed-pause-on-error")
    result.assert_outcomes(failed=1)
    assert "its lab is still up" in result.stdout.str()
    assert running() == []


def test_interrupt_keeps_the_run(scenario: pytest.Pytester) -> None:
    """Ctrl-C during a scenario: the lab goes, what was measured stays, the report is made and says interrupted."""
    body = """
import time
def test_it(lab, measure):
    measure.event("seen")
    print("now", flush=True)
    time.sleep(60)
"""
    path = scenario.makepyfile(test_it=HEAD + body)
    session = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-s", "--testbed-runs=runs", "-p", "no:cacheprovider", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=scenario.path,
        env=os.environ,
    )
    assert session.stdout
    for line in session.stdout:
        if "now" in line:
            break
    session.send_signal(signal.SIGINT)
    session.communicate(timeout=60)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert running() == []
    found = only_run(scenario)
    assert found.manifest["status"] == "interrupted"
    assert len(found.events("seen")) == 1
    assert (found.path / "report.html").exists()


def test_parallel_workers(scenario: pytest.Pytester) -> None:
    """Under pytest-xdist each worker has a lab of its own at the same time."""
    pytest.importorskip("xdist")
    for name in ("test_one", "test_two"):
        scenario.makepyfile(**{name: HEAD + "def test_it(lab):\n    assert lab.exec('a', ['true']).returncode == 0\n"})
    result = scenario.runpytest_subprocess("-n2", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    assert running() == []


def test_dead_session_is_reaped(scenario: pytest.Pytester) -> None:
    """A session that is killed leaves its lab to the next command, which removes it."""
    path = scenario.makepyfile(test_it=HEAD + "import time\ndef test_it(lab):\n    time.sleep(60)\n")
    session = subprocess.Popen(
        [sys.executable, "-m", "pytest", str(path)], stdout=subprocess.DEVNULL, cwd=scenario.path
    )
    deadline = time.monotonic() + 60
    while not any(record.status == "up" for record in running()) and time.monotonic() < deadline:
        time.sleep(0.01)
    session.kill()
    session.wait()
    listing = subprocess.run(
        [sys.executable, "-m", "testbed", "ps", "--json"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(listing.stdout) == []
    assert running() == []
