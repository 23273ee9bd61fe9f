"""Bringing back what a lab needs and has lost: its wire, where guard and supervisor were killed at once."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from testbed.errors import TestbedError
from testbed.lab.state import Folder, is_locked, locked
from testbed.net.wire import engine
from testbed.net.wire.control import Wire

_log = logging.getLogger(__name__)

_LOOK = 0.25
"""Seconds between two looks."""


def revive(folder: Folder) -> bool:
    """Start the lab's wire again if all of it is dead; whether that was so. Does nothing to a lab that is being started
    or taken down. What does not work is reported, and does not keep anybody from their work."""
    if not _is_dead(folder.path) or is_locked(folder.id):
        return False
    try:
        with locked(folder.id, folder.id, timeout=0):
            record = folder.read()
            return bool(record and record.alive()) and engine.revive(folder.path)
    except TestbedError as error:
        if _is_dead(folder.path):
            _log.warning("lab %s: its delayed links are closed, as its wire does not start: %s", folder.id, error)
        return False


def _is_dead(lab_folder: Path) -> bool:
    return engine.exists(lab_folder) and not engine.is_watched(lab_folder)


def wire(lab_folder: Path) -> Wire:
    """A connection to a lab's wire, which is brought back first if it is dead. TestbedError if there is none."""
    if _is_dead(lab_folder):
        revive(Folder(lab_folder.name))
    return engine.connect(lab_folder)


class Caretaker:
    """Looks after a lab as long as it is in use, from now until ``stop``; also a context manager."""

    def __init__(self, lab_folder: Path) -> None:
        self._folder = Folder(lab_folder.name)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lab-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it. Twice is the same as once."""
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> Caretaker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _keep(self) -> None:
        while not self._stopping.wait(_LOOK):
            revive(self._folder)
