"""Helper of ``clock-skew``: shifts the clocks of the programs that a node starts while the fault holds.

Run by ``helpers.start`` with a job of ``lab``, ``fault`` (its id), ``node``, ``service`` and ``skew``.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress

from testbed.errors import TestbedError
from testbed.faults.journal import Journal
from testbed.faults.tools import programs, vdso
from testbed.lab.lab import Lab
from testbed.lab.up import attach

LOOK = 0.1
"""Seconds between two looks: a new program has the true clock for so long."""


def follow(lab: Lab, fault: str, node: str, service: str | None, skew: int) -> None:
    """Until the fault is to be healed, or the lab is gone. Not ended from outside: a process whose clock is being
    shifted stands still for a moment, and must not be left so."""
    journal = Journal(lab.folder)
    refused: set[tuple[int, int]] = set()
    while (entry := journal.current(fault)) is not None and entry.state != "healing":
        for process in programs.members(lab, node, service).items() - refused:
            pid = process[0]
            try:
                if not vdso.reads(pid, skew):
                    vdso.shift(pid, skew)
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has ended
            except (TestbedError, OSError) as error:
                refused.add(process)
                print(f"process {pid}: {error}", flush=True)
        time.sleep(LOOK)


def main() -> None:
    """Do the job that standard input describes."""
    job = json.load(sys.stdin)
    with suppress(FileNotFoundError):  # the lab is gone
        follow(attach(job.pop("lab")), **job)


if __name__ == "__main__":
    main()
