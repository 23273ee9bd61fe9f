"""Runs a command under a User-Mode-Linux kernel, on this machine's own files: read-only, with an overlay in memory.

That kernel has sch_netem, which this machine's may lack. It has no network, and only the job's folder is writable.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError, WaitTimeout

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
PROGRAM = "linux.uml"


@dataclass(frozen=True)
class Outcome:
    """How a command ended inside."""

    status: int
    output: str
    """Of both streams."""
    seconds: float
    """Of the whole: boot, command, shutdown."""


def uml_lack() -> str:
    """Why nothing can be run under User-Mode-Linux here; empty if it can."""
    for program, package in ((PROGRAM, "user-mode-linux"), ("modprobe", "kmod")):
        if shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is None:
            return f"there is no {program} (Debian package {package})"
    return ""


def write_command(job: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """The script that is run inside. The Python in the path is the one that runs now, from its read-only folder."""
    values = {
        "PATH": f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        **environment,
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    lines += [f"cd {shlex.quote(str(PROJECT))}", f"exec {shlex.join(command)}"]
    (job / "command").write_text("\n".join(lines) + "\n")


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


def confined(job: Path, argv: Sequence[str]) -> list[str]:
    """``argv`` with read-only access to all but ``job``, without a network, and ended whole when it is ended.

    Without root it has the caller's rights, and the machine's own overlay is all that protects files.
    """
    if os.geteuid() != 0:
        return list(argv)
    apart = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*apart, sys.executable, str(HERE / "confine.py"), str(job), *argv]


def run_machine(argv: Sequence[str], job: Path, seconds: float, name: str) -> Outcome:
    """Start the machine, wait for its end, and read what the command has left in the job's folder."""
    start = time.monotonic()
    with (job / "console").open("wb") as console:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"a command under {name}", seconds, _end_of(job)) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    status = job / "status"
    if not status.exists():
        raise TestbedError(f"{name} ended with status {process.returncode} before its command: {_end_of(job)}")
    output = (job / "output").read_text(errors="replace")
    return Outcome(int(status.read_text()), output, time.monotonic() - start)


def _end_of(job: Path) -> str:
    """The last lines of the command's output and of the machine's console."""
    ends = []
    for name in ("output", "console"):
        path = job / name
        lines = path.read_text(errors="replace").splitlines()[-30:] if path.exists() else []
        ends.append("\n".join([f"-- end of {name}:", *lines]))
    return "\n".join(ends)
