"""Finding and ending what belongs to a lab by the marks it carries, never by the name of a program.

A process is a lab's if its environment says so, or if it lives in one of the lab's network namespaces (programs such
as nginx overwrite their environment). This needs no list of what was started, so nothing can be missing from it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from testbed.errors import WaitTimeout
from testbed.net import namespace
from testbed.runtime.base import LAB_VARIABLE, send_signal, start_time


def namespace_path(lab: str, node: str) -> Path:
    """Where a node's namespace is kept."""
    return namespace.NETNS_FOLDER / f"tb-{lab}-{node}"


def namespaces(lab: str) -> list[Path]:
    """The kept namespaces of a lab."""
    try:
        return sorted(namespace.NETNS_FOLDER.glob(f"tb-{lab}-*"))
    except FileNotFoundError:
        return []


def processes(lab: str) -> dict[int, int]:
    """Pid and start time of every living process of a lab, but for our own process and those that it runs under
    (a user may say ``down`` in a shell inside the lab)."""
    return processes_in(namespaces(lab), mark=f"{LAB_VARIABLE}={lab}")


def processes_in(namespace_paths: Iterable[Path], *, mark: str = "") -> dict[int, int]:
    """Pid and start time of every living process that is in one of the namespaces, or has ``mark`` (``NAME=value``)
    in its environment; without our own process and those that it runs under."""
    spared = ancestry(os.getpid())
    inodes = {path.stat().st_ino for path in namespace_paths}
    wanted = mark.encode()
    found: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        try:
            owned = (inodes and os.stat(f"{entry.path}/ns/net").st_ino in inodes) or (
                bool(wanted) and wanted in Path(entry.path, "environ").read_bytes().split(b"\0")
            )
        except OSError:
            continue  # it ended while we looked, or is a kernel thread
        if owned and (started := start_time(int(entry.name))) is not None:
            found[int(entry.name)] = started
    return found


def ancestry(pid: int) -> set[int]:
    """``pid``, its parent, that one's parent and so on."""
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def end_processes(lab: str, timeout: float = 10) -> None:
    """End every process of a lab at once and wait until all are gone.

    They are stopped before the first is killed: some watch over others and would start them again. Looks again until
    none is left, since a process may have started another one meanwhile. WaitTimeout names what did not go.
    """
    deadline = time.monotonic() + timeout
    while victims := processes(lab):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid, started in victims.items():
                send_signal(pid, started, number)
        _await(victims, deadline, timeout)
        _bury(victims)


def _await(victims: dict[int, int], deadline: float, timeout: float) -> None:
    while left := [pid for pid, started in victims.items() if start_time(pid) == started]:
        if time.monotonic() > deadline:
            raise WaitTimeout("the lab's processes to end", timeout, f"still there: {describe(left)}")
        time.sleep(0.002)


def _bury(pids: Iterable[int]) -> None:
    """Take note of the end of those that are our own children, so that no zombie of them stays."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def describe(pids: Iterable[int]) -> str:
    """Pids with their command lines, for messages."""
    words = []
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            command = "gone"
        words.append(f"{pid} ({command[:60]})")
    return ", ".join(words)


def remove_namespaces(lab: str) -> None:
    """Remove every kept namespace of a lab."""
    for path in namespaces(lab):
        namespace.remove(path)
