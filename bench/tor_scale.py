"""Private Tor networks of growing size: seconds, memory and processor time until every relay and client is ready.

The figure is of the largest, from the start of the process; all rows go into ``docs/images/tor-scale.svg`` with
``python -m bench.tor_scale_figure``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.figure import Figure, seconds_of
from bench.usage import processor_seconds, proportional_mib

SIZES = (20, 50, 100, 200)
"""Relays; beside them one authority, and a client for four relays."""
TARGET = 240.0
"""Seconds for the largest."""
ROWS = Path(__file__).resolve().parent / "results" / "tor-scale.json"


def measure(name: str) -> Figure:
    """Seconds that the largest network takes. Writes the rows of all sizes to ``ROWS``."""
    rows = [row_of(relays) for relays in SIZES]
    ROWS.parent.mkdir(exist_ok=True)
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Figure(name, "s", TARGET, (float(rows[-1]["seconds"]),))


def row_of(relays: int) -> dict[str, float]:
    """One size, measured once in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scale.yaml"
        file.write_text(topology(relays))
        _, output = seconds_of(["-m", "bench.tor_scale", str(file), str(time.time())], timeout=1200)
    row: dict[str, float] = {"relays": relays, **json.loads(output.splitlines()[-1])}
    print(f"tor-scale: {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


def topology(relays: int) -> str:
    """YAML of a network."""
    tor = f"{{authorities: 1, relays: {relays}, clients: {relays // 4}}}"
    return f"name: tor-scale-{relays}\nseed: 1\ntor: {tor}\n"


def bring_up(file: Path, started: float) -> dict[str, float]:
    """Seconds since the wall clock ``started`` until the network is ready, MiB and processor seconds of its tors."""
    from testbed.lab.up import up
    from testbed.plan.load import load_topology

    _, plan = load_topology(file)
    lab = up(plan, owner=os.getpid())
    try:
        seconds = time.time() - started
        pids = [process.pid for process in lab.processes() if process.alive()]
        return {
            "nodes": len(pids),
            "seconds": round(seconds, 1),
            "mib": round(proportional_mib(pids)),
            "cpu": round(processor_seconds(pids), 1),
            "load": round(os.getloadavg()[0], 1),
        }
    finally:
        lab.down()


if __name__ == "__main__":
    print(json.dumps(bring_up(Path(sys.argv[1]), float(sys.argv[2]))))
