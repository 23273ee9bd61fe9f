"""What a lab's guard and supervisor have in charge together, and how a guard is started with it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NONE = -1


@dataclass(frozen=True)
class Charge:
    """Numbers are descriptors; ``NONE``: there is none."""

    folder: Path
    """The lab's."""
    hang: float
    """Seconds without an answer after which a core counts as hung."""
    died: float
    """When the wire before this one was gone, monotonic; ``NONE``: this is the first."""
    ready: int
    """A pipe on which one line says that all is up, or why not."""
    lock: int
    """Of the wire: guard and supervisor hold it, so whoever can take it knows that neither is left."""
    counters: int
    """Memory in which cores count; it outlives them."""
    supervisor: int
    """A pidfd of the supervisor that is to be watched; ``NONE``: there is none yet."""
    command: tuple[str, ...]
    """What a core is."""

    def arguments(self) -> list[str]:
        """For a new guard; ``parse`` reads them."""
        numbers = (self.hang, self.died, self.ready, self.lock, self.counters, self.supervisor)
        return [str(self.folder), *map(repr, numbers), *self.command]


def parse(arguments: list[str]) -> Charge:
    """What ``Charge.arguments`` gave."""
    folder, hang, died, *words = arguments
    ready, lock, counters, supervisor = map(int, words[:4])
    return Charge(Path(folder), float(hang), float(died), ready, lock, counters, supervisor, tuple(words[4:]))


def start_guard(charge: Charge, **options: Any) -> subprocess.Popen[bytes]:
    """Start a guard; ``options`` are those of Popen. OSError if it cannot be started."""
    fds = [fd for fd in (charge.ready, charge.lock, charge.counters, charge.supervisor) if fd != NONE]
    return subprocess.Popen(
        [sys.executable, "-m", "testbed.net.wire.guard", *charge.arguments()],
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        cwd="/",
        **options,
    )


def replace_guard(charge: Charge) -> subprocess.Popen[bytes]:
    """From a supervisor: start a guard in place of one that has died. OSError if it cannot be started."""
    us = os.pidfd_open(os.getpid())
    try:
        return start_guard(replace(charge, ready=NONE, supervisor=us))
    finally:
        os.close(us)
