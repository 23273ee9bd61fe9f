"""Runs a command under a User-Mode-Linux kernel, on this machine's own files: read-only, with an overlay in memory.

That kernel has sch_netem, which this machine's may lack. It has no network, and only the job's folder is writable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from machine import HERE, Outcome, confined, find, run_as_program, run_machine, write_command

PROGRAM = "linux.uml"


def uml_lack() -> str:
    """Why nothing can be run under User-Mode-Linux here; empty if it can."""
    for program, package in ((PROGRAM, "user-mode-linux"), ("modprobe", "kmod")):
        if find(program) is None:
            return f"there is no {program} (Debian package {package})"
    return ""


def run_in_uml(
    command: Sequence[str],
    job: Path,
    *,
    seconds: float = 120,
    memory_mib: int = 768,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run ``command`` in the project's folder as that kernel's root. The folder ``job`` is writable, at the same path.

    Raises WaitTimeout if it has not ended after ``seconds``, TestbedError if the kernel ended before the command did.
    """
    write_command(job, command, environment or {})
    kernel = [
        PROGRAM,
        f"mem={memory_mib}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "hostfs=/",
        "ro",
        f"uml_dir={job}/",
        f"init={HERE / 'uml_init.sh'}",
        f"job={job}",
        "quiet",
        "con=null",
        "con0=null,fd:1",
    ]
    return run_machine(confined(job, kernel), job, seconds, "User-Mode-Linux")


if __name__ == "__main__":
    run_as_program(run_in_uml, uml_lack)
