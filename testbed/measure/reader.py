"""Reading a run, while it is written or long after."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from testbed.errors import TestbedError
from testbed.measure.environment import writer_alive

MANIFEST = "manifest.json"
DATABASE = "run.sqlite"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at ``t`` seconds after the run's start."""

    id: int
    t: float
    kind: str
    node: str
    detail: dict[str, Any]


class Sample(NamedTuple):
    """A value of a series at ``t`` seconds after the run's start."""

    t: float
    node: str
    value: float


@dataclass(frozen=True, slots=True)
class Step:
    """One stretch of a run under fixed conditions, from its ``step`` events."""

    name: str
    start: float
    end: float
    """Where the run was cut within the step: the time of the last thing recorded."""
    complete: bool
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start

    def during(self, events: Iterable[Event]) -> list[Event]:
        """Those of ``events`` that happened in this step, in their order."""
        return [event for event in events if self.start <= event.t <= self.end]

    @property
    def repeat(self) -> int:
        """Which repeat of its conditions this is, from 1. TestbedError if the run says something else."""
        told = self.detail.get("repeat", 1)
        try:
            return int(told)
        except (TypeError, ValueError, OverflowError):
            raise TestbedError(
                f"step {self.name!r} was recorded as repeat {told!r}", remedy="a repeat is a whole number from 1"
            ) from None

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """What is the same in all repeats of this step."""
        return tuple(
            sorted((key, json.dumps(value, default=str)) for key, value in self.detail.items() if key != "repeat")
        )


class RunReader:
    """A run folder. Each query sees all that is written by then; the folder is never changed."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._database = self.path / DATABASE
        try:
            self.manifest: dict[str, Any] = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _not_a_run(self.path, error) from error
        if not isinstance(self.manifest, dict) or not self._database.exists():
            raise _not_a_run(self.path, "no run.sqlite" if isinstance(self.manifest, dict) else "broken manifest.json")

    @property
    def status(self) -> str:
        """``running``, ``passed``, ``failed``, ``interrupted``, or ``killed``: said to run, but its writer is gone."""
        status = str(self.manifest.get("status", ""))
        if status == "running" and not writer_alive(self.manifest.get("writer") or {}):
            return "killed"
        return status

    @property
    def invalid(self) -> list[str]:
        """Why the run says nothing, as far as its writer knew; ``validity.verdict`` looks at the data too."""
        return [str(reason) for reason in self.manifest.get("invalid") or ()]

    def events(self, kind: str | None = None, node: str | None = None) -> list[Event]:
        """Events in the order of their time, all or of one kind or node."""
        rows = self._query("events", "id, t, kind, node, detail", {"kind": kind, "node": node}, "t, id")
        return [Event(row[0], row[1], row[2], row[3], json.loads(row[4])) for row in rows]

    def samples(self, series: str, node: str | None = None) -> list[Sample]:
        """A series in the order of time, of all nodes or of one."""
        rows = self._query("samples", "t, node, value", {"series": series, "node": node}, "t")
        return [Sample(t, of, math.nan if value is None else value) for t, of, value in rows]  # SQLite has no NaN

    def series(self) -> list[tuple[str, str]]:
        """(series, node) of everything sampled."""
        return [(row[0], row[1]) for row in self._query("samples", "DISTINCT series, node", {}, "series, node")]

    def steps(self, experiment: str | None = None) -> list[Step]:
        """The run's steps in the order of their start, all or those of one experiment."""
        if experiment is None:
            return self._steps
        return [step for step in self._steps if step.detail.get("experiment") == experiment]

    @cached_property
    def end(self) -> float:
        """Time of the last thing recorded, seconds after the start."""
        with self._connect() as database:
            row = database.execute(
                "SELECT max(t) FROM (SELECT max(t) AS t FROM events UNION SELECT max(t) FROM samples)"
            )
            return float(row.fetchone()[0] or 0.0)

    @cached_property
    def _steps(self) -> list[Step]:
        started: dict[str, Event] = {}
        steps: list[Step] = []
        for event in self.events("step"):
            name = str(event.detail.get("step", ""))
            if event.detail.get("edge") == "start":
                started[name] = event
            elif name in started:
                steps.append(_step(name, started.pop(name), event.t, complete=True))
        steps.extend(_step(name, event, max(self.end, event.t), complete=False) for name, event in started.items())
        return sorted(steps, key=lambda step: step.start)

    def _query(self, table: str, columns: str, where: Mapping[str, str | None], order: str) -> list[tuple[Any, ...]]:
        given = {column: value for column, value in where.items() if value is not None}
        condition = " AND ".join(f"{column} = :{column}" for column in given) or "1"
        with self._connect() as database:
            # Only names from this file reach the text; values are bound.
            text = f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY {order}"  # noqa: S608
            return database.execute(text, given).fetchall()

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection for one query, so that a reader never holds up the writer's end."""
        uri = self._database.absolute().as_uri()
        try:
            try:
                database = sqlite3.connect(f"{uri}?mode=ro", uri=True)
                database.execute("SELECT 1 FROM events LIMIT 1")
            except sqlite3.OperationalError:
                if self._database.with_name(f"{DATABASE}-wal").exists():
                    raise
                # In WAL mode without its side files and in a folder that cannot be written: nothing can change it.
                database = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)
            try:
                yield database
            finally:
                database.close()
        except sqlite3.Error as error:
            raise _not_a_run(self.path, error) from error


def _step(name: str, start: Event, end: float, *, complete: bool) -> Step:
    detail = {key: value for key, value in start.detail.items() if key not in ("step", "edge")}
    return Step(name, start.t, end, complete, detail)


def _not_a_run(path: Path, why: object) -> TestbedError:
    return TestbedError(
        f"not a run that can be read: {why}", where=str(path), remedy="`testbed runs` lists the runs there are"
    )
