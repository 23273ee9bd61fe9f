"""The pytest plugin: a lab and a run a scenario, without glue code in the scenario.

    pytestmark = pytest.mark.testbed(topology="onion-paper.yaml", hold=["onions"])

    def test_something(lab, measure): ...

``lab`` is up for the module's tests and gone afterwards; ``measure`` records a run folder and makes its report.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.errors import TestbedError
from testbed.progress import Progress, Silent
from testbed.scenario_module import (
    RecordedProgress,
    begin_measuring,
    find_topology,
    keep_logs,
    lab_name,
    module_wants,
    parameters_of,
    tor_start,
)

if TYPE_CHECKING:
    from testbed.faults.faults import Faults
    from testbed.faults.runner import Timeline
    from testbed.lab.lab import Lab
    from testbed.measure.measure import Measure
    from testbed.model.topology import Topology
    from testbed.plan.types import Plan
    from testbed.tor.measure.freshprobe import RecordedFreshClients

EXIT_INVALID = 10
"""Exit status of a session whose scenarios passed but which recorded an INVALID run (pytest's own end at 5)."""

_progress = pytest.StashKey[Progress]()
_runs = pytest.StashKey[list[Path]]()
_invalid = pytest.StashKey[list[str]]()
_failed = pytest.StashKey[set[str]]()
_interrupted = pytest.StashKey[bool]()
_kept = pytest.StashKey[list[str]]()
_recorders = pytest.StashKey[dict[Path, "Measure"]]()
_plain = pytest.StashKey[bool]()
"""Whether errors of users are told without their way through the code."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("testbed", "network labs")
    group.addoption("--testbed-topology", metavar="FILE", help="use this topology instead of the scenario's own")
    group.addoption("--testbed-runtime", choices=["process", "container"], help="runtime of every node")
    group.addoption("--testbed-impair", choices=["netem", "wire"], help="engine for links with delay, jitter, loss")
    group.addoption("--testbed-repeats", type=_count, default=1, metavar="N", help="repeat each measurement N times")
    group.addoption("--testbed-seed", type=int, metavar="N", help="seed instead of the topology's own")
    group.addoption("--testbed-param", action="append", default=[], metavar="KEY=VALUE", help="scenario parameter")
    group.addoption("--testbed-runs", metavar="DIR", help="folder for run folders (default: $TESTBED_RUNS or runs)")
    group.addoption(
        "--testbed-pcap",
        action="append",
        default=[],
        metavar="NODE:IF",
        help="capture packets there, or at all interfaces of NODE, into the run's pcap folder",
    )
    group.addoption("--testbed-no-fidelity", action="store_true", help="do not try the links before measuring")
    group.addoption(
        "--testbed-cold",
        action="store_true",
        help="private Tor networks make new keys and vote anew, rather than reuse those of an earlier start",
    )
    group.addoption("--testbed-keep", action="store_true", help="leave labs up at the end")
    group.addoption("--testbed-pause-on-error", action="store_true", help="stop before a failed test's lab goes down")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(f"{number} is not a number of repeats")
    return number


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "testbed(topology, hold=(), parameters={}, fidelity=True): the topology of the module's lab, subsystems that "
        "the scenario starts itself, the parameters that it knows, with their defaults as text, and whether links are "
        "tried before a scenario measures",
    )
    config.stash.setdefault(_progress, Silent())
    config.stash[_runs] = []
    config.stash[_invalid] = []
    config.stash[_failed] = set()
    config.stash[_interrupted] = False
    config.stash[_kept] = []
    config.stash[_recorders] = {}


def listen(config: pytest.Config, progress: Progress) -> None:
    """Send the progress of labs and scenarios to ``progress``, for who wants results and not tracebacks."""
    config.stash[_progress] = progress
    config.stash[_plain] = True


def recorded_runs(config: pytest.Config) -> list[Path]:
    """Folders of the runs that this session recorded."""
    return config.stash[_runs]


@pytest.fixture(scope="module")
def testbed_plan(request: pytest.FixtureRequest) -> tuple[Topology, Plan, Path]:
    """The module's topology, its plan and the file it comes from."""
    from testbed.plan.load import load_topology

    marker = request.node.get_closest_marker("testbed")
    given = request.config.getoption("testbed_topology")
    named = given or (marker.kwargs.get("topology") if marker else None)
    if not named:
        raise TestbedError(
            "no topology", where=str(request.path), remedy='add `pytestmark = pytest.mark.testbed(topology="FILE")`'
        )
    path = Path(named) if given else find_topology(named, request.path)
    seed = request.config.getoption("testbed_seed")
    topology, plan = load_topology(path, seed=seed)
    return topology, plan, path


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, testbed_plan: tuple[Topology, Plan, Path]) -> Iterator[Lab]:
    """The lab of the module's topology, up; down again after the module's last test."""
    from testbed.lab.events import Follower
    from testbed.lab.revival import Caretaker
    from testbed.lab.up import up
    from testbed.measure.carried import record_carried

    config = request.config
    _, plan, path = testbed_plan
    marker = request.node.get_closest_marker("testbed")
    recorder = request.getfixturevalue("measure") if module_wants(request, "measure") else None
    progress = RecordedProgress(config.stash[_progress], recorder)
    started = up(
        plan,
        lab_name(plan, request.path),
        runtime=config.getoption("testbed_runtime"),
        progress=progress,
        hold=marker.kwargs.get("hold", ()) if marker else (),
        owner=None if config.getoption("testbed_keep") else os.getpid(),
        topology=str(path.resolve()),
        impair=config.getoption("testbed_impair"),
        warm=not config.getoption("testbed_cold"),
    )
    if recorder:
        recorder.run.update(impairment=started.record.impair or "none", **tor_start(started, request))
        started.listeners.append(recorder.run.listener)
        others = Follower(started.folder, recorder.run.listener)
    try:
        begin_measuring(request, started, recorder)
    except BaseException:
        started.down()
        raise
    with Caretaker(started.folder):
        yield started
    if recorder:
        others.stop()
        recorder.stop()  # its samplers read the lab's namespaces
        record_carried(started.folder, recorder.run)
        keep_logs(started, recorder)
    if config.getoption("testbed_keep"):
        config.stash[_kept].append(started.name)
    else:
        started.down()


@pytest.fixture
def faults(lab: Lab) -> Iterator[Faults]:
    """Injects faults into the module's lab; all are healed at the end of the test, however it ends."""
    from testbed.faults.faults import own_faults

    made = own_faults(lab)
    yield made
    made.heal_all()


@pytest.fixture
def timeline(lab: Lab) -> Iterator[Timeline]:
    """The timeline of the module's topology: ``timeline.run()`` to its end, or ``with timeline:`` beside the block.

    What it did is healed at the end of the test.
    """
    made: Timeline = lab.subsystem("timeline")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def measure(request: pytest.FixtureRequest, testbed_plan: tuple[Topology, Plan, Path]) -> Iterator[Measure]:
    """Records the module's run. Afterwards the run is closed and its report made, also after failure and Ctrl-C."""
    from testbed.measure.measure import Measure
    from testbed.measure.store import Run, runs_root

    config = request.config
    _, plan, path = testbed_plan
    root = Path(config.getoption("testbed_runs") or runs_root())
    repeats = config.getoption("testbed_repeats")
    parameters = parameters_of(request)
    run = Run.create(
        root,
        request.path.stem,
        plan,
        seed=plan.seed,
        topology=path.read_text(),
        manifest={"repeats": repeats, "parameters": parameters, "runtime": config.getoption("testbed_runtime")},
    )
    config.stash[_runs].append(run.path)
    recorder = Measure(run, repeats=repeats, seed=plan.seed, parameters=parameters, progress=config.stash[_progress])
    config.stash[_recorders][request.path] = recorder
    yield recorder
    del config.stash[_recorders][request.path]
    try:
        recorder.stop()
    finally:
        _finish(config, request.node.nodeid, recorder)


@pytest.fixture
def fresh_clients(lab: Lab, measure: Measure) -> RecordedFreshClients:
    """Gives fresh Tor clients, hundreds if wanted, that fetch from the lab's onion services; each goes into the run."""
    from testbed.tor.measure.freshprobe import RecordedFreshClients

    if "onions" not in lab.plan.sections:
        raise TestbedError("fresh clients fetch from onion services", remedy="add a section `onions` to the topology")
    return RecordedFreshClients(lab.subsystem("onions"), measure)


def _finish(config: pytest.Config, module: str, recorder: Measure) -> None:
    from testbed.report import build_report

    run = recorder.run
    failed = any(nodeid.startswith(module) for nodeid in config.stash[_failed])
    run.close("interrupted" if config.stash[_interrupted] else "failed" if failed else "passed")
    config.stash[_invalid].extend(run.invalid_reasons)
    config.stash[_progress].update("report", 0, 1)
    build_report(run.path)
    config.stash[_progress].update("report", 1, 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Remember failures for the run's status; stop before the lab goes where asked to."""
    report = yield
    if report.failed:
        if call.excinfo and isinstance(call.excinfo.value, TestbedError):
            if call.when != "call":
                report.longrepr = str(call.excinfo.value)  # a clear message needs no traceback
            elif item.config.stash.get(_plain, False):
                lines = [entry.lineno + 1 for entry in call.excinfo.traceback if entry.path == item.path]
                report.longrepr = f"{call.excinfo.value}\n  in {item.path.name}, line {', '.join(map(str, lines))}"
        item.config.stash[_failed].add(item.nodeid)
        recorder = item.config.stash[_recorders].get(item.path)
        if recorder and call.excinfo:
            recorder.event("failure", test=item.nodeid, phase=call.when, message=str(call.excinfo.value))
        if item.config.getoption("testbed_pause_on_error"):
            _pause(item, report.longreprtext)
    return report


def _pause(item: pytest.Item, message: str) -> None:
    capture = item.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{message}\n\n{item.nodeid} failed; its lab is still up: `testbed ps`, `testbed shell NODE`.")
        if sys.stdin.isatty():
            input("Press Enter to go on. ")
        else:
            print("stdin is no terminal: going on")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
    """Before fixtures end: tell them whether Ctrl-C came. After: an INVALID run shows in the exit status."""
    stash = session.config.stash
    stash[_interrupted] = exitstatus == pytest.ExitCode.INTERRUPTED
    yield
    if session.exitstatus == pytest.ExitCode.OK and stash[_invalid]:
        session.exitstatus = EXIT_INVALID


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where the runs lie, which of them are INVALID, and which labs are still up."""
    for name in config.stash[_kept]:
        terminalreporter.write_line(f"testbed lab {name} is left up; take it down with `testbed down {name}`")
    for path in config.stash[_runs]:
        terminalreporter.write_line(f"testbed run: {path / 'report.html'}")
    for reason in config.stash[_invalid]:
        terminalreporter.write_line(f"testbed run INVALID: {reason}", red=True)
