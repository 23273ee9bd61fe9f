"""Control groups of our own, in both layouts of the kernel; each carries its lab's id and is removed with the lab.

Version 1 has a hierarchy a controller (Documentation/admin-guide/cgroup-v1), version 2 one for all
(Documentation/admin-guide/cgroup-v2). Where both are mounted, a controller is in the one that it is bound to.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError

Controller = Literal["cpu", "memory"]


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where a controller's groups are."""

    controller: Controller
    version: Literal[1, 2]
    root: Path

    def own(self, lab: str, name: str) -> Path:
        """The group of a lab for something called ``name``."""
        return self.root / f"tb-{lab}-{name}"

    def of(self, pid: int) -> Path:
        """The group that a process is in; ProcessLookupError if it is gone."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except FileNotFoundError as error:
            raise ProcessLookupError(pid) from error
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if self.controller in controllers.split(",") if self.version == 1 else not controllers:
                return self.root / path.lstrip("/")
        return self.root

    def make(self, group: Path) -> None:
        """Make a group of ours. TestbedError if the controller is not handed down to it."""
        group.mkdir(exist_ok=True)
        if self.version == 2 and self.controller not in (group / "cgroup.controllers").read_text().split():
            group.rmdir()
            raise TestbedError(
                f"the control group {self.root} does not hand down `{self.controller}`",
                remedy=f"echo +{self.controller} > {self.root}/cgroup.subtree_control",
            )

    def members(self, group: Path) -> list[int]:
        """Pids of the processes in a group."""
        try:
            return [int(word) for word in (group / "cgroup.procs").read_text().split()]
        except FileNotFoundError:
            return []

    def move(self, pid: int, group: Path) -> None:
        """Move a process with all its threads; one that is gone is no error."""
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def hierarchy(controller: Controller, mounts: str | None = None) -> Hierarchy:
    """Where the groups of ``controller`` are, by the text of /proc/self/mounts. TestbedError if it is not mounted."""
    unified: Path | None = None
    for line in (mounts if mounts is not None else Path("/proc/self/mounts").read_text()).splitlines():
        _, point, kind, options, *_ = line.split(" ")
        if kind == "cgroup" and controller in options.split(","):
            return Hierarchy(controller, 1, Path(point))
        if kind == "cgroup2" and unified is None:
            unified = Path(point)
    if unified is not None and controller in (unified / "cgroup.controllers").read_text().split():
        return Hierarchy(controller, 2, unified)
    raise TestbedError(f"this machine has no control groups with the controller `{controller}`")


def remove(group: Path, timeout: float = 2) -> None:
    """Remove a group of ours; missing is fine. The kernel refuses for a moment after its last process has ended."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TestbedError(f"the control group {group} cannot be removed: {error.strerror}") from error
            time.sleep(0.005)


def remove_all(lab: str) -> None:
    """Remove every group of a lab, whose processes have ended."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if kind in ("cgroup", "cgroup2"):
            for group in Path(point).glob(f"tb-{lab}-*"):
                remove(group)
