"""Injecting faults into a lab and healing them, whatever happens in between.

Each fault goes: remembered on disk, injected, verified, and later healed and verified again; every step is an event of
the lab with its time. One that does not take is healed and is an error. Whoever injects is the owner: if it dies, the
next command heals what it left.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.base import Fault, FaultError, make_fault
from testbed.faults.journal import Entry, Journal

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

HEAL_TIMEOUT = 30.0
"""Seconds after which healing is given up with a message that says what is left."""


class Faults:
    """The faults of one lab; the fixture ``faults``."""

    def __init__(self, lab: Lab, *, owner: int | None = None) -> None:
        """``owner``: the process whose end means that the faults are to be healed; None: they stay until told."""
        self._lab = lab
        self._journal = Journal(lab.folder)
        self._owner = owner
        self._lock = threading.Lock()

    def inject(self, fault: Fault) -> Entry:
        """Inject and verify; the entry to heal it by. FaultError if it did not take: it is healed again then."""
        lab = self._lab
        memory = fault.remember(lab)
        settings = fault.model_dump(mode="json")
        with self._lock:
            entry = self._journal.add(fault.kind, settings, memory, self._owner)
        lab.event("fault", fault.subject(), fault=fault.kind, id=entry.id, phase="start", settings=settings)
        try:
            fault.inject(lab, memory)
            seen = fault.verify(lab, memory)
        except BaseException as error:
            lab.event("fault", fault.subject(), fault=fault.kind, id=entry.id, phase="failed", message=str(error))
            self.heal(entry)
            raise
        lab.event("fault", fault.subject(), fault=fault.kind, id=entry.id, phase="verified", seen=seen)
        return self._journal.set_state(entry, "active")

    def heal(self, entry: Entry, *, timeout: float = HEAL_TIMEOUT) -> None:
        """Undo a fault and verify that it is undone. FaultError or WaitTimeout says what is left; the entry stays."""
        fault = make_fault(entry.kind, entry.settings)
        lab = self._lab
        self._journal.set_state(entry, "healing")
        seen = _bounded(lambda: _heal(fault, lab, entry), timeout, f"fault {entry.id} to be healed")
        self._journal.remove(entry)
        lab.event("fault", fault.subject(), fault=fault.kind, id=entry.id, phase="healed", seen=seen)

    @contextmanager
    def active(self, fault: Fault) -> Iterator[Entry]:
        """The fault holds inside the block and is healed when it ends, however it ends."""
        entry = self.inject(fault)
        try:
            yield entry
        finally:
            self.heal(entry)

    def entries(self) -> list[Entry]:
        """Faults that are not healed, of any owner."""
        return self._journal.entries()

    def entry(self, identity: str) -> Entry:
        """The unhealed fault of that id; TestbedError names those that there are."""
        entries = {entry.id: entry for entry in self.entries()}
        if identity not in entries:
            names = ", ".join(entries) or "none"
            raise TestbedError(f"there is no fault {identity!r} in lab {self._lab.name!r}", remedy=f"active: {names}")
        return entries[identity]

    def heal_all(self, *, abandoned_only: bool = False) -> list[str]:
        """Heal the newest first; ids of those healed. The first error is raised once all have been tried."""
        healed: list[str] = []
        failure: Exception | None = None
        for entry in reversed(self.entries()):
            if abandoned_only and not entry.abandoned():
                continue
            try:
                self.heal(entry)
                healed.append(entry.id)
            except Exception as error:  # the others must be healed as well
                failure = failure or error
        if failure:
            raise failure
        return healed


def own_faults(lab: Lab) -> Faults:
    """Faults that are healed when this process ends, at the latest by the next command."""
    return Faults(lab, owner=os.getpid())


def _heal(fault: Fault, lab: Lab, entry: Entry) -> str:
    fault.heal(lab, entry.memory)
    return fault.verify_healed(lab, entry.memory)


def _bounded(work: object, seconds: float, awaited: str) -> str:
    """The result of ``work``, which is left behind in its thread if it takes longer than ``seconds``."""
    assert callable(work)
    results: list[str] = []
    failures: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            over.set()

    began = time.monotonic()
    threading.Thread(target=run, name="heal", daemon=True).start()
    while not over.wait(0.5):
        if time.monotonic() - began > seconds:
            raise WaitTimeout(awaited, seconds, "healing has not come back", remedy="`testbed fault heal` tries again")
    if failures:
        raise failures[0] if isinstance(failures[0], TestbedError) else FaultError(f"{awaited}: {failures[0]}")
    return results[0]
