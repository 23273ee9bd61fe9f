"""The seam between the core and what it can emulate: Tor, a campus edge, a server pool, or something from elsewhere.

The core knows only this protocol and finds implementations by the entry point group ``testbed.subsystems``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from testbed.errors import Problem, TestbedError

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.model.topology import Topology
    from testbed.plan.builder import PlanBuilder
    from testbed.progress import Progress


@dataclass(frozen=True, slots=True)
class ProgramNeed:
    """A program that nodes of a subsystem run, which this machine must have where such a node is a plain process."""

    program: str
    package: str
    """Debian package that brings it."""
    least: str = ""
    """Oldest version that will do, such as ``0.4.8``; empty: any."""
    remedy: str = ""
    """How to get a newer one, where the distribution's package may be too old."""


class Subsystem(Protocol):
    """One section of a topology and everything that it means.

    It may also have ``check_plan(spec, plan) -> Iterable[Problem]``: pure checks against the whole plan; and
    ``lacks(plan) -> Iterable[tuple[str, str]]``: what this machine lacks for the plan beside programs, with the remedy.
    One that has ``prepare(lab, progress) -> handle`` does there what needs nothing but nodes' folders and containers:
    files, programs in containers that listen to no network. It is called in a thread, while namespaces and links are
    made; the handle is ``lab.subsystem(name)`` afterwards, for ``start`` to go on with.
    One that has ``await_ready(handle) -> None`` may return from ``start`` before all is ready, and may itself be
    started while those that it comes ``after`` are getting ready; they are before its own ``await_ready``.

    Importing a subsystem must be cheap and free of side effects: ``validate`` and ``plan`` import all of them,
    without root. What touches the machine is imported inside ``start`` and ``attach``.
    """

    name: str
    """The key of its section in the topology, and the name of its entry point."""
    after: tuple[str, ...]
    """Subsystems that must be expanded and started before this one, where present."""
    spec: type[BaseModel]
    """The model of its section."""

    def check(self, spec: Any, topology: Topology) -> Iterable[Problem]:
        """Pure checks that the model alone cannot make. Paths start at the root of the topology."""

    def expand(self, spec: Any, topology: Topology, build: PlanBuilder) -> None:
        """Pure: add nodes, links and the section's data (``build.section``) to the plan."""

    def start(self, lab: Lab, progress: Progress) -> Any:
        """Start what runs, once every node and link is there; return the handle for ``lab.subsystem(name)``."""

    def attach(self, lab: Lab) -> Any:
        """The handle for a lab that another process started."""


@contextmanager
def prepared(lab: Lab, progress: Progress, hold: Collection[str] = ()) -> Iterator[None]:
    """While the block runs, the subsystems of a lab's plan but those in ``hold`` are prepared; afterwards they are."""
    wanted = [item for name, item in _wanted(lab, hold) if hasattr(item, "prepare")]
    with ThreadPoolExecutor(len(wanted) or 1) as pool:
        handles = [pool.submit(item.prepare, lab, progress) for item in wanted]
        yield
    for item, handle in zip(wanted, handles, strict=True):
        lab.keep_subsystem(item.name, handle.result())


def start_all(lab: Lab, progress: Progress, hold: Collection[str] = ()) -> None:
    """Start the subsystems of a lab's plan but those in ``hold``, and return when all are ready."""
    pending: list[tuple[Any, Any]] = []

    def settle() -> None:
        while pending:
            subsystem, handle = pending.pop(0)
            subsystem.await_ready(handle)

    for name, subsystem in _wanted(lab, hold):
        waits = hasattr(subsystem, "await_ready")
        if not waits:
            settle()
        handle = subsystem.start(lab, progress)
        lab.keep_subsystem(name, handle)
        if waits:
            pending.append((subsystem, handle))
    settle()


def _wanted(lab: Lab, hold: Collection[str]) -> list[tuple[str, Any]]:
    return [(name, item) for name, item in subsystems().items() if name in lab.plan.sections and name not in hold]


def programs_of(subsystem: Subsystem) -> tuple[ProgramNeed, ...]:
    """The programs that a subsystem's nodes run: its attribute ``programs``, which it may leave out."""
    return tuple(getattr(subsystem, "programs", ()))


@cache
def subsystems() -> dict[str, Subsystem]:
    """All installed subsystems by name, each after the ones it depends on."""
    found: dict[str, Subsystem] = {point.name: point.load() for point in entry_points(group="testbed.subsystems")}
    ordered: dict[str, Subsystem] = {}

    def place(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            raise TestbedError(f"subsystems depend on each other in a circle: {' -> '.join((*trail, name))}")
        if name in found and name not in ordered:
            for earlier in found[name].after:
                place(earlier, (*trail, name))
            ordered[name] = found[name]

    for name in sorted(found):
        place(name, ())
    return ordered
