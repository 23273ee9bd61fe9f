"""Where a node's programs live: the one interface that the process and the container runtime share."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from testbed.errors import WaitTimeout
from testbed.plan.types import Node, RuntimeName, Service

UNPRIVILEGED_ID = 10001
"""User and group that programs of a lab run as, in both runtimes. It needs no entry in the user database."""

LAB_VARIABLE = "TESTBED_LAB"
"""Environment variable that every process of a lab carries; its value is the lab's id."""


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot (proc(5), stat field 22); None when it is gone or a zombie.

    A pid with its start time names a process for ever; a pid alone is used again.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def send_signal(pid: int, started: int, number: int) -> None:
    """A signal to a process, never to another one that has its pid by now; nothing happens if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if start_time(pid) == started:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Process:
    """A program running in a node, by its pid on the host."""

    node: str
    service: str
    pid: int
    started: int
    """Clock ticks since boot."""
    log: Path
    popen: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)
    """The child, where this very process started it; its end is then known at once and leaves no zombie."""

    def alive(self) -> bool:
        """Whether the program still runs."""
        if self.popen is not None and self.popen.poll() is not None:
            return False
        return start_time(self.pid) == self.started

    def exit_status(self) -> int | None:
        """Exit status (negative: the signal) of an ended program that this very process started; None otherwise."""
        return None if self.popen is None else self.popen.poll()

    def signal(self, number: int) -> None:
        """Send a signal; a program that is gone already is not an error, and nobody else's process is ever hit."""
        send_signal(self.pid, self.started, number)

    def wait_gone(self, timeout: float) -> None:
        """Wait for the end of the program; WaitTimeout after ``timeout`` seconds."""
        wait_all_gone([self], timeout)

    def log_tail(self, lines: int = 10) -> str:
        """The last lines that the program wrote."""
        return log_tail(self.log, lines)


def wait_all_gone(processes: Iterable[Process], timeout: float) -> None:
    """Wait until none of ``processes`` is alive; WaitTimeout names those that are."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    left = [process for process in processes if process.alive()]
    while left:
        if time.monotonic() > deadline:
            names = ", ".join(f"{process.node}/{process.service} (pid {process.pid})" for process in left)
            raise WaitTimeout("programs to end", timeout, f"still there: {names}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
        left = [process for process in left if process.alive()]


def log_tail(path: Path, lines: int = 10) -> str:
    """The last ``lines`` lines of a log, or a word that there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lab keeps what belongs to one node."""

    lab: str
    """The lab's id."""
    node: Node
    folder: Path
    """The node's own folder, at the same path inside and outside of a container."""
    namespace: Path


class Runtime(Protocol):
    """Makes the surroundings of nodes and runs programs in them."""

    name: RuntimeName

    def create(self, places: Sequence[Place]) -> dict[str, int]:
        """Make what the nodes need before they get their network: node name to pid of the process whose network
        namespace is the node's, empty where the lab shall make the namespaces. ApplyError says which node failed."""

    def spawn(self, place: Place, service: Service) -> Process:
        """Start a program in a node, its output going to ``<folder>/<service>.log``; returns once it is executing."""

    def command(self, place: Place, argv: Sequence[str], *, root: bool, terminal: bool) -> list[str]:
        """The command line that runs ``argv`` in the node from the host."""

    def remove(self, lab: str) -> None:
        """Remove everything that ``create`` made for a lab (by id), whoever made it. Nothing there is fine."""


def expand_argv(service: Service, folder: Path) -> list[str]:
    """The service's command with ``${dir}`` replaced by the node's folder."""
    return [word.replace("${dir}", str(folder)) for word in service.argv]
