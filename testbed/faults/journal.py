"""The record of a lab's faults on disk: what is injected, by whom, and what its undoing needs.

One JSON file a fault under ``<lab>/faults``, replaced in one step at each change of state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultBusy
from testbed.lab.state import lock_held, write_atomically
from testbed.runtime.base import start_time

State = Literal["injecting", "active", "healing"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault that is not healed yet."""

    id: str
    """Its kind and a number that no other fault of the lab has or had."""
    kind: str
    settings: dict[str, Any]
    state: State
    since: float
    """Wall clock of the injection."""
    owner_pid: int | None
    """The process whose end means that the fault is to be healed; None: it stays until told."""
    owner_started: int | None
    claims: tuple[str, ...] = ()
    parent: str = ""
    """Id of the fault that this one is part of."""
    memory: dict[str, Any] | None = None
    """None: nothing has been touched yet."""

    def abandoned(self) -> bool:
        """Whether the process that should have healed it is gone. One without an owner stays until told."""
        return self.owner_pid is not None and start_time(self.owner_pid) != self.owner_started


class Journal:
    """The entries of one lab. Hidden files beside them are locks and the last number."""

    def __init__(self, lab_folder: Path) -> None:
        self.folder = lab_folder / "faults"

    def add(self, kind: str, settings: dict[str, Any], claims: Iterable[str], parent: str = "") -> Entry:
        """A new entry, on disk when this returns; its owner is this process until ``activate``.

        FaultBusy if another fault, which is not its parent, claims the same.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        wanted = set(claims)
        with self._exclusive(".lock", 30, "the lab's journal of faults"):
            for other in self.entries():
                if other.id != parent and (both := wanted & set(other.claims)):
                    raise FaultBusy(f"{sorted(both)[0]} is held by fault {other.id}", other.id)
            number = self._next_number()
            me = os.getpid()
            entry = Entry(
                f"{kind}-{number}",
                kind,
                settings,
                "injecting",
                time.time(),
                me,
                start_time(me),
                tuple(sorted(wanted)),
                parent,
            )
            self.write(entry)
        return entry

    def activate(self, entry: Entry, owner: int | None) -> Entry:
        """The entry of a fault that has taken, and whose it is."""
        started = start_time(owner) if owner else None
        return self.write(replace(entry, state="active", owner_pid=owner, owner_started=started))

    def write(self, entry: Entry) -> Entry:
        """Put the entry on disk."""
        write_atomically(self.folder / entry.id, json.dumps(asdict(entry)))
        return entry

    def remove(self, entry: Entry) -> None:
        """Forget a healed fault."""
        (self.folder / entry.id).unlink(missing_ok=True)
        for path in self.folder.glob(f".{entry.id}.*"):
            path.unlink(missing_ok=True)

    def log(self, identity: str) -> Path:
        """Where programs of a fault write; gone with the entry."""
        return self.folder / f".{identity}.log"

    def current(self, identity: str) -> Entry | None:
        """The entry as it is on disk now; None once the fault is healed."""
        try:
            return _read(self.folder / identity)
        except FileNotFoundError:
            return None

    def entries(self) -> list[Entry]:
        """All faults that are not healed, oldest first."""
        try:
            names = [path for path in self.folder.iterdir() if not path.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = []
        for path in names:
            try:
                found.append(_read(path))
            except FileNotFoundError:
                continue  # healed meanwhile
        return sorted(found, key=lambda entry: (entry.since, entry.id))

    @contextmanager
    def held(self, entry: Entry, timeout: float) -> Iterator[Entry | None]:
        """Be the only one who works on ``entry``: it as it is now, None once healed. WaitTimeout names who is at it."""
        with self._exclusive(f".{entry.id}.lock", timeout, f"fault {entry.id}"):
            yield self.current(entry.id)

    @contextmanager
    def _exclusive(self, name: str, timeout: float, what: str) -> Iterator[None]:
        try:
            descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # the lab is gone, and its faults with it
            yield
            return
        with lock_held(descriptor, timeout, lambda pid: WaitTimeout(what, timeout, f"process {pid} is at work on it")):
            yield

    def _next_number(self) -> int:
        path = self.folder / ".last"
        try:
            number = int(path.read_text()) + 1
        except (FileNotFoundError, ValueError):
            number = 1
        write_atomically(path, str(number))
        return number


def _read(path: Path) -> Entry:
    facts = json.loads(path.read_text())
    return Entry(**{**facts, "claims": tuple(facts["claims"])})
