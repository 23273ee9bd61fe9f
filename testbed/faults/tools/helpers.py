"""Helper programs of a fault, which work while it holds: found again by a mark in their environment, never by name.

A helper outlives whoever injected the fault; it stops by itself at its bounds, when the fault is healed, or with the
lab.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import testbed
from testbed.errors import WaitTimeout
from testbed.faults.base import FaultError, Memory
from testbed.faults.journal import Journal
from testbed.lab.ownership import describe, processes_in
from testbed.lab.state import state_root
from testbed.runtime.base import LAB_VARIABLE, log_tail, start_time

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

MARK = "TESTBED_FAULT"
OUTSIDE = "TESTBED_OUTSIDE"
"""Set for a helper that stands in a node's network, but is no part of the machine that the node stands for."""


def start(lab: Lab, memory: Memory, module: str, job: dict[str, Any], *, node: str = "", outside: bool = False) -> int:
    """Run a module of this package with ``job`` as JSON on its input, in a node's network namespace if one is given.

    Returns its pid.
    """
    enter = ["nsenter", f"--net={lab.namespace(node)}", "--"] if node else []
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": str(Path(testbed.__file__).parents[1]),
        "TESTBED_STATE": str(state_root()),
        LAB_VARIABLE: lab.id,
        MARK: _mark(lab, memory),
        **({OUTSIDE: "1"} if outside else {}),
    }
    with Journal(lab.folder).log(memory["id"]).open("ab") as log:
        child = subprocess.Popen(
            [*enter, sys.executable, "-m", f"{__package__}.{module}"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    assert child.stdin is not None
    with child.stdin:
        while child.pid not in find(lab, memory) and child.poll() is None:
            time.sleep(0.001)  # the kernel shows the environment of a program a moment after it has begun
        child.stdin.write(json.dumps(job).encode())
    return child.pid


def find(lab: Lab, memory: Memory) -> dict[int, int]:
    """Pid and start time of every living helper of a fault."""
    return processes_in([], mark=f"{MARK}={_mark(lab, memory)}")


def end(lab: Lab, memory: Memory, timeout: float = 10) -> None:
    """End the helpers of a fault and wait until they are gone. WaitTimeout names what is left."""
    deadline = time.monotonic() + timeout
    while left := find(lab, memory):
        for pid, started in left.items():
            if start_time(pid) == started:
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise WaitTimeout("the helpers of the fault to end", timeout, f"still there: {describe(left)}")
        time.sleep(0.002)


def verify_gone(lab: Lab, memory: Memory) -> None:
    """FaultError if a helper still runs."""
    if left := find(lab, memory):
        raise FaultError(f"helpers still run: {describe(left)}")


def last_words(lab: Lab, memory: Memory) -> str:
    """What the helpers of a fault have written."""
    return log_tail(Journal(lab.folder).log(memory["id"]))


def is_outside(pid: int) -> bool:
    """Whether a process is a helper that is no part of the machine that its node stands for."""
    try:
        return f"{OUTSIDE}=1".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _mark(lab: Lab, memory: Memory) -> str:
    return f"{lab.id}/{memory['id']}"
