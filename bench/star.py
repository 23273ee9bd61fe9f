"""N plain hosts around one router: made, pinged from first to last, removed; all as one process from nothing."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.figure import Figure, seconds_of

TARGETS = {100: 1.0, 300: 2.5}
RUNS = 7


def measure(name: str) -> Figure:
    """Seconds for the whole cycle."""
    hosts = int(name.rpartition("-")[2])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "star.yaml"
        file.write_text(topology(hosts))
        seconds_of(["-m", "bench.star", str(file)])  # not counted: it fills the caches
        values = [seconds_of(["-m", "bench.star", str(file)])[0] for _ in range(RUNS)]
    return Figure(name, "s", TARGETS[hosts], tuple(values))


def topology(hosts: int) -> str:
    """YAML of a star."""
    nodes = "".join(f"  h{number}:\n" for number in range(1, hosts + 1))
    links = "".join(f"  - [core, h{number}]\n" for number in range(1, hosts + 1))
    return f"name: star-{hosts}\nnodes:\n{nodes}links:\n{links}"


def cycle(file: Path) -> None:
    """Up, ping and down, in this process."""
    from testbed.lab.up import up
    from testbed.plan.load import load_topology

    _, plan = load_topology(file)
    lab = up(plan)
    try:
        first, last = plan.nodes[0].name, [node.name for node in plan.nodes if node.kind == "host"][-1]
        lab.exec(first, ["ping", "-c1", "-W2", str(plan.address(last))], check=True)
    finally:
        lab.down()


if __name__ == "__main__":
    cycle(Path(sys.argv[1]))
