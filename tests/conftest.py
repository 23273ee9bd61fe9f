"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from states import own_state

from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.plan.types import Plan

# The same examples everywhere and each time, so more of them would find nothing new at the second run.
settings.register_profile("testbed", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("explore", deadline=None)  # new ones: pytest --hypothesis-profile explore
settings.load_profile("testbed")  # deadline: a slow machine is no failure


WARNINGS = (
    "error",
    # What a later version of a library or of Python will change is no failure of today's.
    "default::DeprecationWarning",
    "default::PendingDeprecationWarning",
    "default::SyntaxWarning",
    # These come when garbage is collected or a thread happens to end, in whatever test runs then.
    "ignore::ResourceWarning",
    "default::pytest.PytestUnraisableExceptionWarning",
    "default::pytest.PytestUnhandledThreadExceptionWarning",
)
"""What fails a test that has the same data each time. Others show their warnings: what they measure differs."""
NEEDS = ("root", "engine", "tor", "vm")
"""Markers of tests that need more than Python, and that measure."""


def pytest_configure() -> None:
    """Ctrl-C works in what the tests start also where a shell has started them in the background, and so without it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is there now stays to the end: looking through it for garbage again and again takes a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need root are not run without it, nor those of containers where no engine answers (but see CI)."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in NEEDS):
            item.add_marker(pytest.mark.filterwarnings(*WARNINGS))
    if os.geteuid() == 0:
        _skip_without_engine([item for item in items if item.get_closest_marker("engine")])
        return
    for item in items:
        if any(item.get_closest_marker(name) for name in ("root", "engine", "tor")):
            item.add_marker(pytest.mark.xfail(run=False, reason="needs root", strict=False))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failure, show what happened in the labs of the test: its own words seldom tell why."""
    report = yield
    if report.failed:
        for name, events in _last_events(getattr(item, "funcargs", {})):
            report.sections.append((f"last events of lab {name}", events))
    return report


def _last_events(fixtures: dict[str, Any], count: int = 80) -> Iterator[tuple[str, str]]:
    """Names of labs that fixtures hold, and the last lines of their event files."""
    from testbed.lab.lab import Lab

    labs = {lab.folder: lab for value in fixtures.values() if isinstance(lab := getattr(value, "lab", value), Lab)}
    for folder, lab in labs.items():
        path = folder / "events.jsonl"
        if path.exists():
            with path.open() as lines:
                last = deque(lines, count)
            yield lab.name, "".join(line if len(line) < 400 else line[:400] + "...\n" for line in last)


def _skip_without_engine(items: list[pytest.Item]) -> None:
    from testbed.runtime import engine

    if not items or os.environ.get("TESTBED_NEEDS_ENGINE"):
        return
    try:
        engine.probe()
    except engine.EngineError as error:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=error.what))


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder of the test's own, see ``states.own_state``."""
    with own_state() as folder:
        yield folder


@pytest.fixture(scope="module")
def module_state() -> Iterator[Path]:
    """One for all tests of a module."""
    with own_state() as folder:
        yield folder


@pytest.fixture(scope="session")
def kept_networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is kept of Tor networks that several modules bring up: the first one cold, all others warm."""
    return tmp_path_factory.mktemp("warm")


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """Plan of a topology given as keyword arguments, the way that YAML would say it."""

    def make(**topology: Any) -> Plan:
        plan, problems = expand(Topology.model_validate({"name": "test", **topology}))
        assert problems == []
        return plan

    return make
