"""What the userspace wire carries in earnest: the paper's Tor network over delayed links, with its clients at work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bench.figure import Figure
from bench.wire_load import measured
from testbed.net.wire.protocol import quantile_us

TOPOLOGY = Path(__file__).resolve().parent.parent / "topologies" / "onion-wan.yaml"
SECONDS = 40.0


def measure(name: str) -> list[Figure]:
    """By how much one frame in a hundred left later than due, packets a second, and processor time of the core."""
    from testbed.lab.up import up
    from testbed.measure.fidelity import check_fidelity
    from testbed.measure.load import LoadSummary, run_load
    from testbed.plan.load import load_topology

    _, plan = load_topology(TOPOLOGY)
    say(f"load of the machine before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    lab = up(plan, hold=["onions"], impair="wire", owner=os.getpid(), warm=True)
    try:
        check = check_fidelity(lab)
        say(f"{len(check.checks)} directions tried: {'all right' if check.ok else '; '.join(check.reasons)}")
        tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
        ((service, spec),) = onions.services.items()
        onions.start(service)
        summary: list[LoadSummary] = []

        def work() -> None:
            clients = {client: tor.socks_path(client) for client in tor.clients}
            size, address = spec.content.size, onions.address(service)
            summary.append(run_load(clients, address, 80, "/file", size=size, seed=plan.seed, duration=SECONDS))

        carried = measured(lab.folder, work)
        say(f"{summary[0].ok} downloads of {spec.content.size} bytes: {dict(summary[0].outcomes)}")
        say(f"{len(plan.links)} links: {carried.text()}; load of the machine: {os.getloadavg()[0]:.1f}")
        again = check_fidelity(lab)
        say(f"{len(again.checks)} directions tried again: {'all right' if again.ok else '; '.join(again.reasons)}")
    finally:
        lab.down()
    share = (carried.cpu_user + carried.cpu_system) / carried.seconds
    values = {
        f"{name}-late": ("us in 99 % of cases", quantile_us(carried.lateness, 0.99), 1024.0),
        f"{name}-frames": ("frames/s", carried.frames / carried.seconds, None),
        f"{name}-core": ("% of a processor", 100 * share, None),
    }
    return [Figure(label, unit, target, (float(value),)) for label, (unit, value, target) in values.items()]


def say(text: str) -> None:
    """Tell what is behind a figure."""
    print(f"  {text}", file=sys.stderr, flush=True)
