"""Following a lab's events on disk, whichever process writes them: helpers of faults, the wire, other commands."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.lab.lab import Listener

_LOOK = 0.2
"""Seconds between two looks. Events carry their own time, so a late look makes nothing late."""
_FRAME = frozenset({"t", "wall", "kind", "node", "by"})


def read(lab_folder: Path) -> list[dict[str, Any]]:
    """All events so far; a line that is not whole yet is left out."""
    return Tail(lab_folder, whole=True).new()


class Tail:
    """The events that are written from now on, or ``whole``: from the first one on."""

    def __init__(self, lab_folder: Path, *, whole: bool = False) -> None:
        self._path = lab_folder / "events.jsonl"
        self._offset = self._path.stat().st_size if self._path.exists() and not whole else 0

    def new(self) -> list[dict[str, Any]]:
        """The events since the last call; a line that is not whole yet is left for the next one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:  # the lab is gone
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class Follower:
    """Tells a listener of the events that other processes write, from now until ``stop``."""

    def __init__(self, lab_folder: Path, listener: Listener) -> None:
        self._tail = Tail(lab_folder)
        self._listener = listener
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="lab-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell what has been written until now, and end. Twice is the same as once."""
        self._stopping.set()
        self._thread.join()

    def _follow(self) -> None:
        over = False
        while not over:
            over = self._stopping.wait(_LOOK)
            for event in self._tail.new():
                if event.get("by") != os.getpid():
                    detail = {key: value for key, value in event.items() if key not in _FRAME}
                    self._listener(event["t"], event["kind"], event.get("node", ""), detail)
