"""The web server behind an instance of an onion service: nginx on a unix socket, one file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testbed.errors import ApplyError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.measure.content import content_blocks
from testbed.plan.types import Service
from testbed.runtime.base import UNPRIVILEGED_ID
from testbed.tor.node import SPAWNERS, TorNode, listens
from testbed.tor.torrc import Paths

LIMIT = 15.0
"""Seconds for nginx to listen."""
SERVICE = Service(name="nginx", argv=("nginx", "-p", "${dir}", "-c", "${dir}/nginx.conf", "-e", "stderr"))


def configuration(instance: str, paths: Paths, places: Sequence[str] = ()) -> str:
    """An nginx that serves ``/file`` and says by the header X-Instance who it is. One process, in the foreground.

    It listens at its unix socket and at ``places`` (address:port of the node).
    """
    folder = paths.node
    listen = "".join(f"        listen {place};\n" for place in (f"unix:{paths.web}", *places))
    temporary = "".join(
        f"    {kind}_temp_path {folder}/nginx-temp;\n" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    return (
        "daemon off;\n"
        "master_process off;\n"
        f"pid {folder}/nginx.pid;\n"
        "error_log stderr warn;\n"
        "events { worker_connections 512; }\n"
        "http {\n"
        "    access_log off;\n"
        "    default_type application/octet-stream;\n"
        f"{temporary}"
        "    sendfile on;\n"
        "    server {\n"
        f"{listen}"
        f"        root {folder}/www;\n"
        f"        add_header X-Instance {instance} always;\n"
        "    }\n"
        "}\n"
    )


def prepare(instance: str, paths: Paths, size: int, seed: int, places: Sequence[str] = ()) -> None:
    """Write an instance's nginx.conf and the file of ``size`` bytes that it serves."""
    paths.web.unlink(missing_ok=True)  # what an nginx that was killed leaves would keep the next one from listening
    (paths.node / "nginx.conf").write_text(configuration(instance, paths, places))
    served = paths.node / "www" / "file"
    for folder in (served.parent, paths.node / "nginx-temp"):
        folder.mkdir(exist_ok=True)
        os.chown(folder, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    if not served.exists() or served.stat().st_size != size:
        _write(served, size, seed)


def ensure(lab: Lab, nodes: Sequence[TorNode], size: int, seed: int) -> None:
    """Prepare and start the web server of each of ``nodes`` where it does not run."""
    running = {process.node for process in lab.processes() if process.service == SERVICE.name and process.alive()}
    idle = [node for node in nodes if node.name not in running]
    for node in idle:
        prepare(node.name, node.paths, size, seed)
    start(lab, idle)


def start(lab: Lab, nodes: Sequence[TorNode]) -> None:
    """Start the web server of each instance and wait until all accept connections."""
    with ThreadPoolExecutor(SPAWNERS) as pool:
        processes = list(pool.map(lambda node: lab.spawn(node.name, SERVICE), nodes))
    deadline = time.monotonic() + LIMIT
    for node, process in zip(nodes, processes, strict=True):
        while not listens(node.paths.web):
            if not process.alive():
                raise ApplyError(f"nginx ended; its last words:\n{process.log_tail()}", where=node.name)
            if time.monotonic() > deadline:
                raise WaitTimeout("nginx to listen", LIMIT, f"its log:\n{process.log_tail()}", where=node.name)
            time.sleep(0.01)


def _write(path: Path, size: int, seed: int) -> None:
    with path.open("wb") as file:
        for block in content_blocks(size, seed):
            file.write(block)
