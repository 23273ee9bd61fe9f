"""The ban agent: hears a web server's log and refuses who asked too much or too badly, at every border router.

One runs beside the redirector's and each web server's nginx, as root, and reaches the border routers by entering their
namespaces, where an operator would have a network for such things. Its job is JSON on the command line: socket, log,
namespaces, filter.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

from testbed.edge.filters.packets import ban_commands
from testbed.edge.filters.requests import BAD
from testbed.edge.filters.spec import FilterSpec
from testbed.model.quantities import SECOND
from testbed.plan.types import Service

_LINE = re.compile(rb"edge: (\S+) (\d{3})\s*\Z")
_SOURCES = 100_000
"""Sources that are remembered; beyond it the one that was quiet for longest is forgotten."""


class Ledger:
    """Requests of late, by source."""

    def __init__(self, spec: FilterSpec) -> None:
        self._within = spec.ban.within / SECOND
        self._bad_ones = spec.ban.after
        self._requests = max(1, int(spec.requests * self._within))
        self._seen: dict[str, tuple[deque[float], deque[float]]] = {}

    def see(self, source: str, status: int, now: float) -> bool:
        """Take one answer down; whether that was a bad one too many, or one too many. ``now``: seconds, never falls."""
        every, bad = self._seen.pop(source) if source in self._seen else (deque(), deque())
        every.append(now)
        if status in BAD:
            bad.append(now)
        for times in (every, bad):
            while times and times[0] <= now - self._within:
                times.popleft()
        if len(bad) >= self._bad_ones or len(every) > self._requests:
            return True
        self._seen[source] = every, bad  # now the last in the order of the dictionary
        if len(self._seen) > _SOURCES:
            self._seen.pop(next(iter(self._seen)))
        return False


def parse(datagram: bytes) -> tuple[str, int] | None:
    """(client, status) of one line of the log, None for anything else."""
    found = _LINE.search(datagram)
    return (found[1].decode(errors="replace"), int(found[2])) if found else None


def service(folder: Path, namespaces: Sequence[Path], spec: FilterSpec, socket_name: str) -> Service:
    """How to start it in the redirector's node."""
    job = {
        "socket": str(folder / socket_name),
        "log": str(folder / "bans.jsonl"),
        "namespaces": [str(path) for path in namespaces],
        "filter": spec.model_dump(mode="json"),
    }
    root = str(Path(__file__).parents[3])
    argv = (sys.executable, "-m", "testbed.edge.filters.agent", json.dumps(job))
    return Service(name="ban-agent", argv=argv, env={"PYTHONPATH": root}, root=True)


def run(job: dict[str, Any]) -> None:
    """Listen until the end of the lab."""
    spec = FilterSpec.model_validate(job["filter"])
    ledger = Ledger(spec)
    path = Path(job["socket"])
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, Path(job["log"]).open("a", buffering=1) as log:
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        heard.bind(f"{path}.new")
        os.chmod(f"{path}.new", 0o666)  # noqa: S103 - the server writes there, and nobody else reaches the folder
        os.rename(f"{path}.new", path)  # there for others only once it can be used
        while True:
            line = parse(heard.recv(4096))
            if line is None or not ledger.see(*line, time.monotonic()):
                continue
            source = ip_address(line[0])
            if isinstance(source, IPv4Address):
                refused = [refuse(namespace, source, spec) for namespace in job["namespaces"]]
                note = {"t": time.monotonic(), "source": line[0], "errors": [error for error in refused if error]}
                log.write(f"{json.dumps(note)}\n")


def refuse(namespace: str, source: IPv4Address, spec: FilterSpec) -> str:
    """Put a source on the list of one border router; what went wrong, if anything."""
    done = subprocess.run(
        ["nsenter", f"--net={namespace}", "--", "nft", "-f", "-"],
        input=ban_commands(source, spec),
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else f"{namespace}: {done.stderr.strip()}"


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
