"""What the pytest plugin does for a scenario's module: its topology, its parameters, its lab's beginning and end."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.progress import Progress

if TYPE_CHECKING:
    import pytest

    from testbed.lab.lab import Lab
    from testbed.measure.measure import Measure
    from testbed.plan.types import Plan


def find_topology(named: str, scenario: Path) -> Path:
    """A scenario's topology: beside it, in the ``topologies`` folder beside its folder, or where the path says."""
    places = [scenario.parent / named, scenario.parent.parent / "topologies" / named, Path(named)]
    for place in places:
        if place.is_file():
            return place
    raise TestbedError(f"there is no topology {named!r}", remedy=f"looked at {', '.join(map(str, places))}")


def parameters_of(request: pytest.FixtureRequest) -> dict[str, str]:
    """The scenario's parameters: its own defaults and what the command line says."""
    marker = request.node.get_closest_marker("testbed")
    values: dict[str, str] = dict(marker.kwargs.get("parameters", {})) if marker else {}
    for word in request.config.getoption("testbed_param"):
        key, separator, value = word.partition("=")
        if not separator:
            raise TestbedError(f"parameter {word!r} has no value", remedy="write KEY=VALUE")
        if key not in values:
            known = ", ".join(values) or "none"
            raise TestbedError(f"{request.path.stem} has no parameter {key!r}", remedy=f"it has: {known}")
        values[key] = value
    return values


def module_wants(request: pytest.FixtureRequest, fixture: str) -> bool:
    """Whether any test of the module uses ``fixture``."""
    items = (item for item in request.session.items if item.path == request.path)
    return any(fixture in getattr(item, "fixturenames", ()) for item in items)


def lab_name(plan: Plan, scenario: Path) -> str:
    """One name a session and worker, so that several sessions can be at work on the same topology."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return "-".join(word for word in (plan.name, scenario.stem.replace("_", "-"), worker, str(os.getpid())) if word)


class RecordedProgress:
    """Passes progress on, and records the end of each stage in the run."""

    def __init__(self, progress: Progress, recorder: Measure | None) -> None:
        self._progress = progress
        self._recorder = recorder
        self._done: set[str] = set()
        self._lock = threading.Lock()

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Pass on; the first time that a stage is over is an event."""
        self._progress.update(stage, done, total, note)
        with self._lock:
            over = done >= total and stage not in self._done
            if over:
                self._done.add(stage)
        if over and self._recorder:
            self._recorder.event("stage", stage=stage, count=total, note=note)


def tor_start(started: Lab, request: pytest.FixtureRequest) -> dict[str, str]:
    """How a private Tor network that is up was started, for the run's manifest."""
    marker = request.node.get_closest_marker("testbed")
    if "tor" not in started.plan.sections or (marker and "tor" in marker.kwargs.get("hold", ())):
        return {}
    return {"tor_start": "warm" if started.subsystem("tor").warm else "cold"}


def begin_measuring(request: pytest.FixtureRequest, started: Lab, recorder: Measure | None) -> None:
    """Begin the captures that were asked for, and try the links before anything is measured on them."""
    places = request.config.getoption("testbed_pcap")
    if recorder is None:
        if places:
            raise TestbedError(
                "--testbed-pcap: this scenario records no run that a capture could go to",
                where=str(request.path),
                remedy="have a test of it use the fixture `measure`",
            )
        return
    for place in places:
        recorder.capture(started, place)
    marker = request.node.get_closest_marker("testbed")
    wanted = marker.kwargs.get("fidelity", True) if marker else True
    if wanted and not request.config.getoption("testbed_no_fidelity"):
        recorder.check_fidelity(started)


def keep_logs(lab: Lab, recorder: Measure) -> None:
    """Copy the nodes' logs into the run folder before they go with the lab."""
    for node in lab.plan.nodes:
        for log in lab.node_folder(node.name).glob("*.log"):
            shutil.copyfile(log, recorder.path / "logs" / f"{node.name}-{log.name}")
