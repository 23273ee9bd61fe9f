"""Programs as plain processes on the host's files, in the node's network namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import ApplyError, WaitTimeout
from testbed.plan.types import RuntimeName, Service
from testbed.runtime.base import (
    LAB_VARIABLE,
    UNPRIVILEGED_ID,
    Place,
    Process,
    expand_argv,
    log_tail,
    start_time,
)

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessRuntime:
    """Needs util-linux (nsenter, setpriv) and nothing else."""

    name: RuntimeName = "process"

    def create(self, places: Sequence[Place]) -> dict[str, int]:
        """Nothing to make: the namespace is all that a node is."""
        return {}

    def spawn(self, place: Place, service: Service) -> Process:
        """Start a program. ApplyError when there is no such program or it cannot be executed."""
        where = f"node {place.node.name}"
        argv = expand_argv(service, place.folder)
        program = shutil.which(argv[0], path=_SEARCH_PATH) if "/" not in argv[0] else argv[0]
        if program is None or not os.access(program, os.X_OK):
            raise ApplyError(f"service {service.name}: there is no program {argv[0]!r}", where=where)
        log = place.folder / f"{service.name}.log"
        environment = {"PATH": _SEARCH_PATH, "HOME": str(place.folder), "LC_ALL": "C.UTF-8", **service.env}
        environment[LAB_VARIABLE] = place.lab
        with log.open("ab") as output:
            child = subprocess.Popen(
                self.command(place, [program, *argv[1:]], root=service.root, terminal=False),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=place.folder,
                env=environment,
                start_new_session=True,
            )
        _await_exec(child, service, where, log)
        started = start_time(child.pid)
        if started is None:  # a program that has done its work already
            started = -1
        return Process(place.node.name, service.name, child.pid, started, log, child)

    def command(self, place: Place, argv: Sequence[str], *, root: bool, terminal: bool) -> list[str]:
        """nsenter, and setpriv unless as root; both replace themselves, so the pid is the program's."""
        enter = ["nsenter", f"--net={place.namespace}", "--"]
        if root:
            return [*enter, *argv]
        identity = str(UNPRIVILEGED_ID)
        drop = ["setpriv", "--reuid", identity, "--regid", identity, "--clear-groups", "--no-new-privs"]
        return [*enter, *drop, "--bounding-set=-all", "--inh-caps=-all", "--", *argv]

    def remove(self, lab: str) -> None:
        """Nothing was made; the lab ends the processes and removes the namespaces."""


def _await_exec(child: subprocess.Popen[bytes], service: Service, where: str, log: Path, timeout: float = 10) -> None:
    """Wait until nsenter and setpriv have become the program itself, so that what follows sees only the program."""
    wrappers = {os.path.realpath(path) for name in ("nsenter", "setpriv") if (path := shutil.which(name))}
    deadline = time.monotonic() + timeout
    while True:
        status = child.poll()
        if status:
            raise ApplyError(
                f"service {service.name} ended at once with status {status}; its last words:\n{log_tail(log)}",
                where=where,
            )
        try:
            running = os.readlink(f"/proc/{child.pid}/exe")
        except OSError:
            running = ""
        if status == 0 or (running and running not in wrappers):
            return
        if time.monotonic() > deadline:
            raise WaitTimeout(f"service {service.name} to be executed", timeout, running or "nothing", where=where)
        time.sleep(0.001)
