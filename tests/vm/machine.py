"""What virtual machines for tests have in common: a command, a folder for it, an end within a given time."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError, WaitTimeout

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
_SECONDS_TO_DIE = 10


@dataclass(frozen=True)
class Outcome:
    """How a command ended inside."""

    status: int
    output: str
    """Of both streams."""
    seconds: float
    """Of the whole: boot, command, shutdown."""


def find(program: str) -> str | None:
    """Where a program is, also outside the path of ordinary users."""
    return shutil.which(
        program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin:/usr/lib/qemu:/usr/libexec"
    )


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
    argv = ["setpriv", "--pdeathsig", "KILL", *argv]  # it shall not outlive this process
    # Every process of the machine has the writing end; reading ends when the last of them has.
    alive, held = os.pipe()
    with (job / "console").open("wb") as console, os.fdopen(alive, "rb") as rest:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[held],
        )
        os.close(held)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"a command under {name}", seconds, _end_of(job)) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if not select.select([rest], [], [], _SECONDS_TO_DIE)[0]:
                raise WaitTimeout(f"the end of all processes of {name}", _SECONDS_TO_DIE, "some of them alive")
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


def run_as_program(run: Callable[..., Outcome], lack: Callable[[], str]) -> None:
    """Run the command line's command in a machine, show its output and end with its exit status."""
    if problem := lack():
        sys.exit(problem)
    with tempfile.TemporaryDirectory(prefix="testbed-vm-") as job:
        outcome = run(sys.argv[1:], Path(job), seconds=3600)
    sys.stdout.write(outcome.output)
    sys.exit(outcome.status)
