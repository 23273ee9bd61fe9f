"""A node whose clock is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.errors import WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, ServiceName, Skew
from testbed.faults.tools import helpers, programs, vdso

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_TRIAL = "import sys, time\nfor line in sys.stdin: print(time.time_ns(), flush=True)"
_GRACE = 5.0
_CLOSE_US = 1_000
"""How far the shift may be off. By how much a busy machine delays the measurement is measured with it."""


class ClockSkew(Fault):
    """The wall clock of the node's programs is shifted, without a restart; monotonic clocks go on as they are.

    It holds for the processes that run at the injection, for those that they fork, and from a tenth of a second after
    their start for programs that are started later. Programs that ask the kernel itself, past the C library's clock
    functions, see the true time; so do time stamps of files.
    """

    kind: ClassVar[str] = "clock-skew"
    node: NodeName
    service: ServiceName = None
    skew: Annotated[Skew, Field(description="Forward or back, such as +1h or -90s.")]

    def claims(self, lab: Lab) -> set[str]:
        """The clock."""
        return programs.claims(lab, self.node, self.service, "clock")

    def remember(self, lab: Lab) -> Memory:
        """When this was, in clock ticks since boot. What is to be restored can be told from the kernel's own code."""
        programs.running(lab, self.node, self.service)
        if not self._members(lab):
            raise FaultError(f"nothing runs in node {self.node}")
        vdso.image()
        return {"ticks": int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Shift the clock of every process, and have a helper shift those of programs that are started later."""
        for pid in self._members(lab):
            try:
                vdso.shift(pid, self.skew)
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has ended
        job = {"lab": lab.name, "fault": memory["id"], "node": self.node, "service": self.service, "skew": self.skew}
        helpers.start(lab, memory, "skew", job)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Each process has the code, and that code shifts the clock of a process made for the trial, and not ours. The
        helper is at work."""
        if not helpers.find(lab, memory):
            raise FaultError(f"the helper for programs to come has ended: {helpers.last_words(lab, memory)}")

        def pids() -> list[int]:
            return [pid for pid, started in self._members(lab).items() if started <= memory["ticks"]]

        found, deadline = pids(), time.monotonic() + _GRACE
        while wrong := [pid for pid in found if not self._reads(pid)]:
            # such as one that ran another program just after it was shifted; the helper looks again and again
            if time.monotonic() > deadline:
                raise FaultError(f"the clock of processes {wrong} is not shifted", where=f"node {self.node}")
            time.sleep(0.01)
            found = pids()
        if not found:
            raise FaultError("no process has a shifted clock: all have ended", where=f"node {self.node}")
        least, most = self._measure(lab)
        if not least - _CLOSE_US <= self.skew <= most + _CLOSE_US:
            raise FaultError(f"a clock that was shifted by {self.skew} us is off by {least} to {most} us")
        return f"{len(found)} processes; a trial clock is off by {most / 1e6:.3f} s"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Restore the kernel's code in every process that has other code, whoever made it, and then in those that such
        processes have forked meanwhile."""
        with suppress(WaitTimeout):  # it ends by itself, unless it hangs
            programs.await_none(lambda: helpers.find(lab, memory), "the helper to end", _GRACE)
        helpers.end(lab, memory)
        while shifted := [pid for pid in self._members(lab) if vdso.is_shifted(pid)]:
            for pid in shifted:
                with suppress(ProcessLookupError, FileNotFoundError):  # it has ended
                    vdso.restore(pid)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """Every process has the kernel's code, and nobody is there to change it."""
        helpers.verify_gone(lab, memory)
        if left := [pid for pid in self._members(lab) if vdso.is_shifted(pid)]:
            raise FaultError(f"the clock of processes {left} is still shifted", where=f"node {self.node}")
        return "every process has the true clock"

    def _members(self, lab: Lab) -> programs.Pids:
        if self.service is not None and self.service not in lab.services(self.node):
            return {}
        return programs.members(lab, self.node, self.service)

    def _reads(self, pid: int) -> bool:
        try:
            return vdso.reads(pid, self.skew)
        except (ProcessLookupError, FileNotFoundError):
            return True  # it has ended

    def _measure(self, lab: Lab) -> tuple[int, int]:
        """Least and most microseconds by which a process in the node's network, shifted in the same way, is off: it
        reads its clock at some moment between the question and the answer."""
        command = ["nsenter", f"--net={lab.namespace(self.node)}", "--", sys.executable, "-Ec", _TRIAL]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trial:
            assert trial.stdin
            assert trial.stdout
            try:
                for number in range(2):
                    if number:
                        vdso.shift(trial.pid, self.skew)
                    before = time.time_ns()
                    print(file=trial.stdin, flush=True)
                    read = int(trial.stdout.readline())
                    after = time.time_ns()
                return (read - after) // 1000, (read - before) // 1000
            finally:
                trial.kill()
