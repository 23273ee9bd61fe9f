"""The programs of a node: which there are, signals to them, and starting them again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultError, Memory
from testbed.faults.tools.helpers import is_outside
from testbed.lab.lab import SETTLE
from testbed.lab.ownership import ancestry, describe
from testbed.plan.types import Service
from testbed.runtime.base import Process, send_signal, start_time

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Pids = dict[int, int]
"""Pids with their start times."""


def running(lab: Lab, node: str, service: str | None) -> list[str]:
    """The named program of a node, or all that run in it, if any. FaultError if the named one does not run."""
    known = lab.services(node)
    if service is not None and service not in known:
        raise FaultError(
            f"node {node} runs no program {service!r}", remedy=f"its programs: {', '.join(known) or 'none'}"
        )
    alive = [name for name, (process, _) in known.items() if process.alive()]
    if service is not None and service not in alive:
        raise FaultError(f"program {service} of node {node} does not run")
    return alive if service is None else [service]


def remember(lab: Lab, node: str, service: str | None) -> Memory:
    """The same by name and pid. FaultError if nothing runs."""
    names = running(lab, node, service)
    if not names:
        raise FaultError(f"no program runs in node {node}")
    known = lab.services(node)
    return {"names": names, "pids": {name: known[name][0].pid for name in names}}


def claims(lab: Lab, node: str, service: str | None, what: str) -> set[str]:
    """``what`` of one program, or of all programs and of the node."""
    names = [service] if service is not None else list(lab.services(node))
    return {f"{what} of {node}/{name}" for name in names} | (set() if service else {f"{what} of {node}"})


def members(lab: Lab, node: str, service: str | None) -> Pids:
    """Every living process of a program with what it has started, or of a whole node.

    Without a container's first process, which is the node itself, and without helpers that only use its network.
    """
    if service is None:
        everyone = lab.pids(node)
        return {pid: started for pid, started in everyone.items() if not (_is_first(pid) or is_outside(pid))}
    process, _ = lab.services(node)[service]
    return _family(process)


def _family(process: Process) -> Pids:
    """The process, its descendants, and those of its session whose parent is gone."""
    parents: dict[int, int] = {}
    found = {process.pid} if process.alive() else set()
    spared = ancestry(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            parents[int(entry.name)] = int(fields[1])
            if int(fields[3]) == process.pid and int(fields[19]) >= process.started:
                found.add(int(entry.name))
    size = -1
    while len(found) != size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return {pid: started for pid in found - spared if (started := start_time(pid)) is not None}


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on, the state; None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _is_first(pid: int) -> bool:
    """Whether a process is the first one of a PID namespace below ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1 and numbers[-1] == "1"


def first_process(lab: Lab, node: str) -> int:
    """The first process of a node that is a container, on which its namespaces hang. FaultError if there is none."""
    for pid in lab.pids(node):
        if _is_first(pid):
            return pid
    raise FaultError(f"the container of node {node} does not run")


def state(pid: int) -> str:
    """The letter of a process's state (proc(5)); empty when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal (SigIgn of proc(5)); not so if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def send(pids: Pids, number: int) -> None:
    """A signal to each, never to another process that has the pid by now."""
    for pid, started in pids.items():
        send_signal(pid, started, number)


def await_none(look: Callable[[], Iterable[int]], what: str, timeout: float) -> None:
    """Wait until ``look`` finds nothing any more; WaitTimeout names what it finds."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while left := list(look()):
        if time.monotonic() > deadline:
            raise WaitTimeout(what, timeout, f"still there: {describe(left)}")
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def kill(lab: Lab, node: str, service: str | None, timeout: float = 10) -> None:
    """Kill everything at once, and again what was started meanwhile, until nothing is left."""

    def left() -> Pids:
        found = members(lab, node, service)
        send(found, signal.SIGKILL)
        return found

    await_none(left, f"the killed programs of node {node} to end", timeout)


def start_again(lab: Lab, node: str, names: Iterable[str]) -> None:
    """Start those programs of a node that do not run, and see that they stay up for a moment."""
    known = lab.services(node)
    started = [lab.spawn(node, known[name][1]) for name in names if name in known and not known[name][0].alive()]
    deadline = time.monotonic() + SETTLE
    while started and time.monotonic() < deadline:
        for process in started:
            if not process.alive():
                raise FaultError(
                    f"program {process.service} of node {node} ended at once; its last words:\n{process.log_tail()}"
                )
        time.sleep(0.01)


def verify_running(lab: Lab, node: str, names: Iterable[str]) -> str:
    """FaultError names the programs that do not run."""
    known = lab.services(node)
    names = list(names)
    dead = [name for name in names if name not in known or not known[name][0].alive()]
    if dead:
        raise FaultError(f"node {node}: {', '.join(dead)} does not run")
    return f"running: {', '.join(f'{name} (pid {known[name][0].pid})' for name in names)}"


def service_of(lab: Lab, node: str, name: str) -> Service:
    """How a program of a node was started."""
    return lab.services(node)[name][1]
