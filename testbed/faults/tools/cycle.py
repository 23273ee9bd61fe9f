"""Helper program: injects one fault again and again. Its job: lab, parent, fault, settings, every, hold (both seconds),
times."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from testbed.errors import TestbedError
from testbed.faults.base import make_fault
from testbed.faults.faults import Faults
from testbed.lab.up import attach


def run(job: dict[str, Any]) -> None:
    """All cycles. The first fault that does not take, or is not healed, ends it."""
    lab = attach(job["lab"])
    faults = Faults(lab, owner=os.getpid(), parent=job["parent"])
    fault = make_fault(job["fault"], job["settings"])
    start = time.monotonic()
    for number in range(job["times"]):
        _until(start + number * job["every"])
        entry = faults.inject(fault)
        _until(start + number * job["every"] + job["hold"])
        faults.heal(entry)


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    try:
        run(json.load(sys.stdin))
    except (TestbedError, ValueError) as error:
        sys.exit(str(error))
