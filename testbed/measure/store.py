"""The run store: a folder that holds all that a run was and measured, written as it happens.

``manifest.json`` says what ran on what; ``run.sqlite`` holds events and samples on one monotonic clock. An event is
committed before ``event`` returns and samples within 0.2 s, so a run killed at any moment keeps what it measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import TestbedError
from testbed.measure import environment
from testbed.measure.files import StoreError, give_to_invoker, store_error, write_atomically
from testbed.measure.reader import DATABASE, MANIFEST, Event, RunReader, Sample, Step

if TYPE_CHECKING:
    from testbed.plan.types import Plan

__all__ = ["Event", "Run", "RunReader", "Sample", "Step", "StoreError", "runs_in", "runs_root"]

STATUSES = ("passed", "failed", "interrupted")
COMMIT_SECONDS = 0.2
"""Samples wait at most this long for their commit."""
_CHECKPOINT_BYTES = 16 * 2**20

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 0;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, t REAL NOT NULL, kind TEXT NOT NULL, node TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE samples (t REAL NOT NULL, series TEXT NOT NULL, node TEXT NOT NULL, value REAL);
CREATE INDEX events_kind ON events (kind, t);
CREATE INDEX samples_series ON samples (series, node, t);
"""


def runs_root() -> Path:
    """Where runs are kept unless said otherwise: ``$TESTBED_RUNS``, else ``runs`` in the current folder."""
    return Path(os.environ.get("TESTBED_RUNS") or "runs")


def runs_in(root: Path) -> list[RunReader]:
    """All readable runs under ``root``, oldest first. A folder that does not exist holds none."""
    found = []
    for manifest in root.glob(f"*/{MANIFEST}"):
        try:
            found.append(RunReader(manifest.parent))
        except TestbedError:  # another's folder, or half a run: a list shows what can be read
            continue
    return sorted(found, key=lambda run: (str(run.manifest.get("started", "")), run.path.name))


class Run:
    """A run that is being recorded. All methods may be called from any thread.

    Once the folder cannot be written, every call raises the same ``StoreError``.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], clock: float) -> None:
        self.path = path
        self.clock = clock
        """``time.monotonic()`` at the run's start: time 0 of everything recorded."""
        self._manifest = manifest
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, str, str, float]] = []
        self._failure: StoreError | None = None
        self._closing = threading.Event()
        self._committed = threading.Event()
        """The regular commits have ended."""
        self._closed = False
        try:
            self._database = sqlite3.connect(path / DATABASE, check_same_thread=False, isolation_level=None)
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise store_error(error, path) from error
        self._write_manifest()
        threading.Thread(target=self._commit_regularly, name="run-store", daemon=True).start()

    @classmethod
    def create(
        cls,
        root: Path,
        scenario: str,
        plan: Plan,
        *,
        seed: int,
        title: str = "",
        topology: str | None = None,
        manifest: Mapping[str, Any] = {},
    ) -> Self:
        """Start a run in a new folder ``<root>/<scenario>-<date>-<time>-<4 hex>``. Its clock starts now.

        ``topology`` is the text of the topology file. ``manifest`` is added to the manifest; its ``versions`` and
        ``machine`` add to what is found here. Raises ``StoreError`` if the folder cannot be made or written.
        """
        now = datetime.now().astimezone()
        path = _new_folder(root, scenario, now)
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        clock = (before + after) / 2
        content: dict[str, Any] = {
            "format": 1,
            "scenario": scenario,
            "title": title,
            "status": "running",
            "invalid": [],
            "started": now.isoformat(timespec="seconds"),
            "ended": None,
            "seed": seed,
            "clock": {"monotonic": clock, "wall": wall},
            "topology": topology,
            "plan_digest": plan.digest(),
            "impairment": "none",
            "versions": environment.versions(plan),
            "machine": environment.machine(),
            "writer": environment.writer(),
        }
        for key, value in manifest.items():
            both = isinstance(value, Mapping) and isinstance(content.get(key), dict)
            content[key] = {**content[key], **value} if both else value
        content["plan"] = plan.model_dump(mode="json")
        return cls(path, content, clock)

    @property
    def invalid_reasons(self) -> list[str]:
        """Why the run says nothing; empty for a valid one. Complete after ``close``."""
        return list(self._manifest["invalid"])

    def since_start(self, t: float) -> float:
        """A ``time.monotonic()`` value as seconds after the run's start."""
        return t - self.clock

    def told(self, t: float | None) -> float | None:
        """The same to the microsecond, as events tell it; None of what never happened."""
        return None if t is None else round(self.since_start(t), 6)

    def event(self, kind: str, node: str = "", *, t: float | None = None, **detail: Any) -> None:
        """Record that something happened, now or at the ``time.monotonic()`` value ``t``. Safe once this returns."""
        self._event(time.monotonic() if t is None else t, kind, node, detail)

    def listener(self, t: float, kind: str, node: str, detail: Mapping[str, Any]) -> None:
        """``event`` in the form that a lab's ``listeners`` are called in. Never raises: a failure comes out at the
        next call or at ``close``, and what a lab says after ``close`` is no part of the run.
        """
        with contextlib.suppress(StoreError):
            self._event(t, kind, node, detail)

    def _event(self, t: float, kind: str, node: str, detail: Mapping[str, Any]) -> None:
        row = (self.since_start(t), kind, node, json.dumps(detail, default=str))
        self._commit("INSERT INTO events (t, kind, node, detail) VALUES (?, ?, ?, ?)", row)

    def sample(self, series: str, node: str, value: float, *, t: float | None = None) -> None:
        """Record a value, now or at the ``time.monotonic()`` value ``t``. Safe within ``COMMIT_SECONDS``."""
        self.samples([(time.monotonic() if t is None else t, series, node, value)])

    def samples(self, rows: Iterable[tuple[float, str, str, float]]) -> None:
        """Record many values: (``time.monotonic()`` value, series, node, value)."""
        with self._lock:
            self._check()
            self._waiting.extend((self.since_start(t), series, node, float(value)) for t, series, node, value in rows)

    @contextmanager
    def step(self, name: str, **detail: Any) -> Iterator[None]:
        """Record a step: its edges are events, also where its body fails."""
        self.event("step", step=name, edge="start", **detail)
        try:
            yield
        except BaseException as error:
            self.event("step", step=name, edge="end", failed=f"{type(error).__name__}: {error}", **detail)
            raise
        self.event("step", step=name, edge="end", **detail)

    def update(self, **manifest: Any) -> None:
        """Add to the manifest or replace parts of it."""
        with self._lock:
            self._check()
            self._manifest.update(manifest)
            self._write_manifest()

    def invalid(self, reason: str) -> None:
        """Say that the run's figures mean nothing, and why. At once in the manifest, so a killed run says it too."""
        with self._lock:
            if reason in self._manifest["invalid"]:
                return
            self.event("invalid", reason=reason)
            self._manifest["invalid"].append(reason)
            self._write_manifest()

    def close(self, status: str) -> None:
        """End the run as ``passed``, ``failed`` or ``interrupted``. Adds what ``validity`` finds. Once only."""
        if status not in STATUSES:
            raise ValueError(f"{status!r} is none of {STATUSES}")
        if self._closed:
            return
        self._closing.set()
        self._committed.wait(10)
        try:
            self._commit()
            self.update(status=status, ended=datetime.now().astimezone().isoformat(timespec="seconds"))
            self._judge()
        finally:
            self._close_database()
            give_to_invoker(self.path, *self.path.rglob("*"))

    def _judge(self) -> None:
        from testbed.measure.validity import verdict

        for reason in verdict(RunReader(self.path)).invalid:
            self.invalid(reason)

    def _close_database(self) -> None:
        with self._lock:
            # One plain file in the end: it can be read where nothing can be written, and copied alone. While somebody
            # reads, or on a full disk, that fails, and the file stays as readable as it was.
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("PRAGMA journal_mode = DELETE")
            self._database.close()
            self._closed = True
            self._failure = self._failure or StoreError("the run is closed", where=str(self.path))

    def _commit_regularly(self) -> None:
        """Commit waiting samples, and keep the write-ahead log short without ever stopping a caller for the disk."""
        log = self.path / f"{DATABASE}-wal"
        checkpoints = sqlite3.connect(self.path / DATABASE, isolation_level=None)
        try:
            while not self._closing.wait(COMMIT_SECONDS):
                if self._waiting:
                    self._commit()
                if log.stat().st_size > _CHECKPOINT_BYTES:
                    checkpoints.execute("PRAGMA wal_checkpoint(PASSIVE)")
        except StoreError:
            pass  # kept; the next caller gets it
        except (OSError, sqlite3.Error) as error:
            with self._lock:
                self._failure = self._failure or store_error(error, self.path)
        finally:
            checkpoints.close()
            self._committed.set()

    def _commit(self, statement: str = "", row: tuple[Any, ...] = ()) -> None:
        with self._lock:
            self._check()
            rows = list(self._waiting)
            try:
                self._database.execute("BEGIN")
                self._database.executemany("INSERT INTO samples (t, series, node, value) VALUES (?, ?, ?, ?)", rows)
                if statement:
                    self._database.execute(statement, row)
                self._database.execute("COMMIT")
                del self._waiting[: len(rows)]
            except sqlite3.Error as error:
                self._failure = store_error(error, self.path)
                raise self._failure from error
            except BaseException:  # Ctrl-C amid it, or text that is no Unicode: the next commit starts afresh
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_manifest(self) -> None:
        write_atomically(self.path / MANIFEST, json.dumps(self._manifest, indent=1, default=str) + "\n")


def _new_folder(root: Path, scenario: str, now: datetime) -> Path:
    stem = re.sub(r"[^\w.-]+", "-", scenario).strip("-.") or "run"
    try:
        new = not root.exists()
        root.mkdir(parents=True, exist_ok=True)
        if new:
            give_to_invoker(root)
        while True:
            path = root / f"{stem}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            try:
                path.mkdir()
                break
            except FileExistsError:
                continue
        for folder in ("logs", "pcap"):
            (path / folder).mkdir()
    except OSError as error:
        raise store_error(error, root) from error
    return path
