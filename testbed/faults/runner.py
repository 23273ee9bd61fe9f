"""Running a schedule of faults in a lab beside whatever else goes on: all times recorded, all healed at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, WaitTimeout
from testbed.faults.faults import own_faults
from testbed.faults.steps import Done, Run
from testbed.faults.timeline import Planned, parse, schedule, timeline_text
from testbed.lab.revival import Caretaker

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

__all__ = ["Done", "Timeline"]


class Timeline:
    """The faults of a schedule. It begins with ``start``, ``run`` or ``with``, and heals what it did when it ends.

    Faults without an end hold until ``stop``. ``tolerant``: a drawn fault that does not take while another one holds,
    or shortly after, is left out too; what it needs to be seen may be what the other one takes away.
    """

    def __init__(self, lab: Lab, planned: Sequence[Planned], *, tolerant: bool = False) -> None:
        self.planned = list(planned)
        self.tolerant = tolerant
        self._lab = lab
        self._faults = own_faults(lab)
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._run: Run | None = None
        self._failure: BaseException | None = None

    @classmethod
    def of(cls, lab: Lab) -> Timeline:
        """That of the lab's topology, drawn by its seed."""
        entries, _ = parse(lab.plan.sections["timeline"]["entries"])
        return cls(lab, schedule(entries, lab.plan.seed))

    @property
    def done(self) -> list[Done]:
        """What has become of the faults so far, in the order of time; after ``stop`` that of the last run."""
        return self._run.done if self._run else []

    def text(self) -> str:
        """The schedule as a ``timeline:`` that reproduces it."""
        return timeline_text(self.planned)

    def start(self) -> None:
        """Begin, and return at once. TestbedError if it runs already."""
        if self._thread is not None:
            raise TestbedError("the timeline runs already", remedy="stop it first")
        self._failure = None
        self._stopping.clear()
        self._idle.clear()
        self._run = Run(self._lab, self._faults, self.planned, self._stopping, tolerant=self.tolerant)
        self._thread = threading.Thread(target=self._work, args=(self._run,), name="timeline", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every fault was injected and those with an end are healed; raises what went wrong meanwhile.

        WaitTimeout says what is still to come.
        """
        if not self._idle.wait(timeout):
            done = len(self.done)
            raise WaitTimeout("the timeline", timeout or 0, f"{done} of {len(self.planned)} faults have been injected")
        if self._failure:
            self.stop()

    def stop(self) -> None:
        """End now, and heal everything; raises what went wrong. Nothing happens if it does not run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        if self._run:
            self._run.wake()
        thread.join()
        if self._failure:
            raise self._failure

    def run(self, timeout: float | None = None) -> list[Done]:
        """From the beginning to the end."""
        with self:
            self.wait(timeout)
        return self.done

    def __enter__(self) -> Timeline:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _work(self, run: Run) -> None:
        self._lab.event("timeline", phase="start", faults=len(self.planned))
        try:
            with Caretaker(self._lab.folder):
                run.everything()
                self._idle.set()
                self._stopping.wait()
        except BaseException as error:
            self._failure = error
        finally:
            try:
                run.heal_rest()
            except BaseException as error:
                self._failure = self._failure or error
            self._lab.event("timeline", phase="end", injected=len(self.done), failed=str(self._failure or ""))
            self._idle.set()
