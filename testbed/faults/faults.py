"""Injecting faults into a lab and healing them, whatever happens in between.

Each fault goes: remembered on disk, injected, verified, and later healed and verified again; every step is an event of
the lab with its time. One that does not take is healed and is an error. Whoever injects is the owner: if it dies, the
next command heals what it left.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory, make_fault
from testbed.faults.journal import Entry, Journal

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

HEAL_TIMEOUT = 30.0
"""Seconds after which healing is given up with a message that says what is left."""
_LOOK = 3.0
"""Seconds to find out what is left of a fault whose healing hangs."""


class Faults:
    """The faults of one lab; the fixture ``faults``."""

    def __init__(self, lab: Lab, *, owner: int | None = None, parent: str = "") -> None:
        """``owner``: the process whose end means that the faults are to be healed; None: they stay until told.
        ``parent``: id of the fault that those injected here are part of."""
        self._lab = lab
        self._journal = Journal(lab.folder)
        self._owner = owner
        self._parent = parent

    def inject(self, fault: Fault) -> Entry:
        """Inject and verify; the entry to heal it by. FaultError if it did not take: it is healed again then.

        A momentary fault is over, and its entry gone, when this returns. TestbedError if the settings do not fit the
        lab, FaultBusy if another fault holds what this one would change; then nothing has been touched.
        """
        lab = self._lab
        for problem in fault.check(lab.plan):
            if problem.path == ("service",):
                continue  # it may have been started since; the fault itself asks the lab
            raise TestbedError(f"fault {fault.kind}: {problem.message}", remedy=problem.remedy)
        entry = self._journal.add(fault.kind, fault.model_dump(mode="json"), fault.claims(lab), self._parent)
        with self._journal.held(entry, HEAL_TIMEOUT):
            try:
                entry = self._journal.write(replace(entry, memory={**fault.remember(lab), "id": entry.id}))
            except BaseException:
                self._journal.remove(entry)
                raise
            self._event(fault, entry, "start", settings=entry.settings)
            try:
                assert entry.memory is not None
                seen = _do(fault, lab, entry.memory)
            except BaseException as error:
                self._event(fault, entry, "failed", message=str(error))
                self._heal_after(error, fault, entry)
                raise
            self._event(fault, entry, "verified", seen=seen)
            entry = self._journal.activate(entry, self._owner)
            if fault.momentary:
                self._heal(fault, entry, HEAL_TIMEOUT)
        return entry

    def heal(self, entry: Entry, *, timeout: float = HEAL_TIMEOUT) -> bool:
        """Undo a fault and verify that it is undone; whether there was anything left to undo.

        FaultError or WaitTimeout says what is left; the entry stays then.
        """
        with self._journal.held(entry, timeout) as current:
            if current is None:
                return False
            self._heal(make_fault(current.kind, current.settings), current, timeout)
        return True

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

    def heal_all(self, *, abandoned_only: bool = False, timeout: float = HEAL_TIMEOUT) -> list[str]:
        """Heal the newest first; ids of those healed. The first error is raised once all have been tried."""
        chosen = [entry for entry in self.entries() if entry.abandoned() or not abandoned_only]
        return self._heal_each(chosen, timeout)

    def heal_parts(self, parent: str, timeout: float = HEAL_TIMEOUT) -> list[str]:
        """Heal all that is part of the fault ``parent``, the newest first."""
        return self._heal_each([entry for entry in self.entries() if entry.parent == parent], timeout)

    def _heal_each(self, entries: list[Entry], timeout: float) -> list[str]:
        healed: list[str] = []
        failure: Exception | None = None
        for entry in reversed(entries):
            try:
                if self.heal(entry, timeout=timeout):
                    healed.append(entry.id)
            except Exception as error:  # the others must be healed as well
                failure = failure or error
        if failure:
            raise failure
        return healed

    def _heal_after(self, error: BaseException, fault: Fault, entry: Entry) -> None:
        try:
            self._heal(fault, entry, HEAL_TIMEOUT)
        except Exception as second:  # the first error is the one to be told
            error.add_note(f"and what it had done already could not be undone: {second}")

    def _heal(self, fault: Fault, entry: Entry, timeout: float) -> None:
        lab, memory = self._lab, entry.memory
        seen = ""
        if memory is not None:  # else it was abandoned before it touched anything
            self._journal.write(replace(entry, state="healing"))
            try:
                seen = _bounded(lambda: _undo(fault, lab, entry), timeout, f"fault {entry.id} to be healed")
            except BaseException as error:
                if isinstance(error, WaitTimeout) and error.seen == _SILENT:
                    error = _overdue(fault, lab, entry, timeout)
                self._event(fault, entry, "not-healed", message=str(error))
                raise error from None
        self._journal.remove(entry)
        self._event(fault, entry, "healed", seen=seen)

    def _event(self, fault: Fault, entry: Entry, phase: str, **detail: object) -> None:
        part = {"parent": entry.parent} if entry.parent else {}
        self._lab.event("fault", fault.subject(), fault=fault.kind, id=entry.id, phase=phase, **part, **detail)


def own_faults(lab: Lab) -> Faults:
    """Faults that are healed when this process ends, at the latest by the next command."""
    return Faults(lab, owner=os.getpid())


def _do(fault: Fault, lab: Lab, memory: Memory) -> str:
    try:
        fault.inject(lab, memory)
        return fault.verify(lab, memory)
    except OSError as error:
        raise FaultError(f"fault {fault.kind} did not take: {error}") from error


def _undo(fault: Fault, lab: Lab, entry: Entry) -> str:
    assert entry.memory is not None
    fault.heal(lab, entry.memory)
    return fault.verify_healed(lab, entry.memory)


def _overdue(fault: Fault, lab: Lab, entry: Entry, timeout: float) -> WaitTimeout:
    """What to say of a fault whose healing has not come back: what a look at it finds left."""
    assert entry.memory is not None
    memory = entry.memory
    try:
        seen = _bounded(lambda: fault.verify_healed(lab, memory), _LOOK, "a look at what is left")
        left = f"nothing of it is left ({seen or 'by its own check'}), but healing has not come back"
    except WaitTimeout:
        left = "healing has not come back, nor has a look at what is left"
    except Exception as error:  # that is the answer
        left = f"left: {error}"
    return WaitTimeout(f"fault {entry.id} to be healed", timeout, left, remedy=f"try `testbed fault heal {entry.id}`")


_SILENT = "no end of it"


def _bounded(work: Callable[[], str], seconds: float, awaited: str) -> str:
    """The result of ``work``, which is left behind in its thread if it takes longer than ``seconds``."""
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

    deadline = time.monotonic() + seconds
    threading.Thread(target=run, name="heal", daemon=True).start()
    while not over.wait(min(0.5, max(deadline - time.monotonic(), 0.001))):
        if time.monotonic() > deadline:
            raise WaitTimeout(awaited, seconds, _SILENT)
    if failures:
        raise failures[0] if isinstance(failures[0], TestbedError) else FaultError(f"{awaited}: {failures[0]}")
    return results[0]
