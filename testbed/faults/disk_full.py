"""A node whose disk is full: one of a container's temporary file systems."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName
from testbed.faults.tools import programs

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class DiskFull(Fault):
    """A file takes all the space that is left. Containers only: a plain process node has no file system of its own."""

    kind: ClassVar[str] = "disk-full"
    node: NodeName
    path: Literal["/tmp", "/run", "/var/tmp"] = Field("/tmp", description="Which file system.")  # noqa: S108

    def claims(self, lab: Lab) -> set[str]:
        """The free space."""
        return {f"free space of {self.path} of {self.node}"}

    def remember(self, lab: Lab) -> Memory:
        """Nothing; but it must be a container."""
        if lab.node(self.node).runtime != "container":
            raise FaultError(
                f"node {self.node} is a plain process, which writes to the host's disk",
                remedy="give it `runtime: container`",
            )
        programs.first_process(lab, self.node)
        return {}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Allocate what is left, in ever smaller pieces."""
        descriptor = os.open(self._file(lab, memory), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            piece = 1 << 24
            while piece >= 1 << 12:
                try:
                    os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece >>= 1
        finally:
            os.close(descriptor)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """A page more cannot be written."""
        trial = self._file(lab, memory).with_suffix(".trial")
        try:
            trial.write_bytes(bytes(4096))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return f"{self.path} takes no more byte"
            raise
        finally:
            trial.unlink(missing_ok=True)
        raise FaultError(f"{self.path} of node {self.node} still takes data")

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Remove the file."""
        self._file(lab, memory).unlink(missing_ok=True)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """There is space again, as far as it is ours."""
        if self._file(lab, memory).exists():
            raise FaultError(f"{self._file(lab, memory)} is still there")
        stat = os.statvfs(self._file(lab, memory).parent)
        return f"{stat.f_bavail * stat.f_frsize} bytes are free"

    def _file(self, lab: Lab, memory: Memory) -> Path:
        return Path(f"/proc/{programs.first_process(lab, self.node)}/root{self.path}/.{memory['id']}")
