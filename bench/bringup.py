"""A private Tor network and an onion service, from nothing to the first file that a client has fetched through it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.figure import Figure, seconds_of

TOPOLOGIES = Path(__file__).resolve().parent.parent / "topologies"
CASES = {
    "bringup-small": ("onion-small.yaml", 1, 17.0, False),
    "bringup-paper": ("onion-paper.yaml", 3, 30.0, False),
    "bringup-warm": ("onion-paper.yaml", 1, 10.0, True),
}
"""Topology, instances started, seconds that it may take, and whether with what an earlier start has left.

A warm start is timed to the first request that is served, for which one instance is enough."""
RUNS = 3


def measure(name: str) -> Figure:
    """Seconds from the start of the process to the last byte of the first download."""
    file, instances, target, warm = CASES[name]
    values = []
    for run in range(-1 if warm else 0, RUNS):
        arguments = [str(TOPOLOGIES / file), str(instances), str(time.time()), "warm" if warm else "cold"]
        _, output = seconds_of(["-m", "bench.bringup", *arguments])
        seconds, how = output.splitlines()[-1].split()
        if run >= 0:
            if how != arguments[-1]:
                raise SystemExit(f"{name}: it was a {how} start")
            values.append(float(seconds))
    return Figure(name, "s", target, tuple(values))


def first_fetch(file: Path, instances: int, started: float, warm: bool) -> tuple[float, str]:
    """Seconds since the wall clock ``started`` when a client has the file, and whether the start was warm or cold."""
    from testbed.lab.up import up
    from testbed.measure.load import run_load
    from testbed.plan.load import load_topology

    _, plan = load_topology(file)
    lab = up(plan, f"bench-{plan.name}", hold=["onions"], warm=warm)
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
        return seconds, "warm" if tor.warm else "cold"
    finally:
        lab.down()


if __name__ == "__main__":
    print(*first_fetch(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "warm"))
