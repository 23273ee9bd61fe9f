"""A private Tor network and an onion service, from nothing to the first file that a client has fetched through it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.figure import Figure, seconds_of

TOPOLOGIES = Path(__file__).resolve().parent.parent / "topologies"
CASES = {"bringup-small": ("onion-small.yaml", 1, 17.0), "bringup-paper": ("onion-paper.yaml", 3, 30.0)}
"""Topology, instances started, and seconds that it may take."""
RUNS = 3


def measure(name: str) -> Figure:
    """Seconds from the start of the process to the last byte of the first download."""
    file, instances, target = CASES[name]
    values = []
    for _ in range(RUNS):
        _, output = seconds_of(["-m", "bench.bringup", str(TOPOLOGIES / file), str(instances), str(time.time())])
        values.append(float(output.splitlines()[-1]))
    return Figure(name, "s", target, tuple(values))


def first_fetch(file: Path, instances: int, started: float) -> float:
    """Seconds since the wall clock ``started`` when a client has the file."""
    from testbed.lab.up import up
    from testbed.measure.load import run_load
    from testbed.plan.load import load_topology

    _, plan = load_topology(file)
    lab = up(plan, f"bench-{plan.name}", hold=["onions"])
    try:
        tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
        service, spec = next(iter(onions.services.items()))
        onions.start(service, instances)
        client = tor.clients[0]
        summary = run_load(
            {client: tor.socks_path(client)},
            onions.address(service),
            80,
            "/file",
            size=spec.content.size,
            seed=plan.seed,
            count=1,
        )
        seconds = time.time() - started
        if summary.ok != 1:
            raise SystemExit(f"the client could not fetch: {dict(summary.outcomes)}")
        return seconds
    finally:
        lab.down()


if __name__ == "__main__":
    print(first_fetch(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
