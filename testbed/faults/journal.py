"""The record of a lab's faults on disk: what is injected, by whom, and what its undoing needs.

One JSON file a fault under ``<lab>/faults``, replaced in one step at each change of state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from testbed.lab.state import write_atomically
from testbed.runtime.base import start_time

State = Literal["injecting", "active", "healing"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault that is not healed yet."""

    id: str
    kind: str
    settings: dict[str, Any]
    memory: dict[str, Any]
    state: State
    since: float
    """Wall clock of the injection."""
    owner_pid: int | None
    owner_started: int | None

    def abandoned(self) -> bool:
        """Whether the process that should have healed it is gone. One without an owner stays until told."""
        return self.owner_pid is not None and start_time(self.owner_pid) != self.owner_started


class Journal:
    """The entries of one lab."""

    def __init__(self, lab_folder: Path) -> None:
        self._folder = lab_folder / "faults"

    def add(self, kind: str, settings: dict[str, Any], memory: dict[str, Any], owner: int | None) -> Entry:
        """A new entry, on disk when this returns."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        number = 1
        while True:
            identity = f"{kind}-{number}"
            try:
                os.close(os.open(self._folder / identity, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:
                number += 1
        started = start_time(owner) if owner else None
        entry = Entry(identity, kind, settings, memory, "injecting", time.time(), owner, started)
        self._write(entry)
        return entry

    def set_state(self, entry: Entry, state: State) -> Entry:
        """The entry in its new state, which is on disk."""
        changed = replace(entry, state=state)
        self._write(changed)
        return changed

    def remove(self, entry: Entry) -> None:
        """Forget a healed fault."""
        (self._folder / entry.id).unlink(missing_ok=True)

    def entries(self) -> list[Entry]:
        """All faults that are not healed, oldest first."""
        return sorted(self._read(), key=lambda entry: entry.since)

    def _read(self) -> Iterator[Entry]:
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            try:
                yield Entry(**json.loads(path.read_text()))
            except (ValueError, TypeError, FileNotFoundError):
                continue  # killed between making the file and writing it: nothing was touched yet

    def _write(self, entry: Entry) -> None:
        write_atomically(self._folder / entry.id, json.dumps(asdict(entry)))
