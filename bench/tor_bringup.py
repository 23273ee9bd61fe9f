"""A private Tor network and an onion service, from nothing to the first file that a client has fetched through it.

``bringup-chutney`` has chutney (CHUTNEY_PATH) and the testbed make networks of the same nodes, one after the other and
each once, and gives processor time and memory of each.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bench.figure import Figure, seconds_of
from bench.usage import processor_seconds, proportional_mib, resident_mib

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.measure.fetch import Target

TOPOLOGIES = Path(__file__).resolve().parent.parent / "topologies"
RUNS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and what is asked of it."""

    topology: str
    """A file of ``topologies``, or YAML."""
    instances: int = 0
    """Of the first onion service, where the topology is a file. For the first request that is served one is enough."""
    target: float | None = None
    """Seconds that it may take."""
    warm: bool = False
    """Whether with what an earlier start has left."""

    def text(self) -> str:
        """The topology in YAML, with no more than ``instances`` of the first onion service."""
        if "\n" in self.topology:
            return self.topology
        topology = yaml.safe_load((TOPOLOGIES / self.topology).read_text())
        next(iter(topology["onions"].values()))["instances"] = self.instances
        return yaml.safe_dump(topology, sort_keys=False)


CASES = {
    "bringup-small": Case("onion-small.yaml", 1, 17.0),
    "bringup-paper": Case("onion-paper.yaml", 3, 30.0),
    "bringup-warm": Case("onion-paper.yaml", 1, 10.0, warm=True),
}

_BASIC = "tor: {authorities: 3, relays: 0, exits: 5, clients: 2}\n"
_HS = "tor: {authorities: 3, relays: 0, exits: 5, clients: 1}\nonions: {shop: {instances: 1, runtime: process}}\n"
COMPARED = {
    "chutney-basic": Case("name: chutney-basic\ntor: {engine: chutney, network: basic}\n"),
    "testbed-basic": Case(f"name: testbed-basic\nseed: 1\n{_BASIC}"),
    "testbed-basic-warm": Case(f"name: testbed-basic\nseed: 1\n{_BASIC}", warm=True),
    "chutney-hs-v3": Case("name: chutney-hs-v3\ntor: {engine: chutney, network: hs-v3}\n"),
    "testbed-hs-v3": Case(f"name: testbed-hs-v3\nseed: 1\n{_HS}"),
    "testbed-hs-v3-warm": Case(f"name: testbed-hs-v3\nseed: 1\n{_HS}", warm=True),
}
"""Chutney's networks and the testbed's of the same nodes. ``basic`` has no onion service: timed until it is up."""


def measure(name: str) -> list[Figure]:
    """Seconds from the start of the process to the last byte of the first download."""
    if name == "bringup-chutney":
        return compared()
    case = CASES[name]
    rows = [run(name, case) for _ in range(RUNS + case.warm)]  # the first warm start may be a cold one
    return [Figure(name, "s", case.target, tuple(row["seconds"] for row in checked(name, case, rows[case.warm :])))]


def compared() -> list[Figure]:
    """Every network of ``COMPARED`` once: seconds, processor seconds, MiB. One that does not come up is left out."""
    if "CHUTNEY_PATH" not in os.environ:
        print("bringup-chutney: not measured, CHUTNEY_PATH is not set", file=sys.stderr)
        return []
    figures = []
    for label, case in COMPARED.items():
        try:
            (row,) = checked(label, case, [run(label, case)])
        except SystemExit as failure:
            print(f"{label}: not measured: {failure}", file=sys.stderr, flush=True)
            continue
        for key, unit in (("seconds", "s"), ("cpu", "s"), ("pss", "MiB"), ("rss", "MiB")):
            suffix = "" if key == "seconds" else f"-{key}"
            figures.append(Figure(f"bringup-{label}{suffix}", unit, case.target, (row[key],)))
    return figures


def checked(name: str, case: Case, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, if each start was what it was to be."""
    if any(row["warm"] != case.warm for row in rows):
        raise SystemExit(f"{name}: it was a {'cold' if case.warm else 'warm'} start")
    return rows


def run(name: str, case: Case) -> dict[str, Any]:
    """One start, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "topology.yaml"
        file.write_text(case.text())
        arguments = [str(file), str(time.time()), "warm" if case.warm else "cold"]
        _, output = seconds_of(["-m", "bench.tor_bringup", *arguments], timeout=900)
    row: dict[str, Any] = json.loads(output.splitlines()[-1])
    print(f"{name}: {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


def first_fetch(file: Path, started: float, warm: bool) -> dict[str, Any]:
    """Seconds since the wall clock ``started`` when all is ready and when a client has the file; what it has cost."""
    from testbed.lab.up import up
    from testbed.measure.load import run_load
    from testbed.plan.load import load_topology

    _, plan = load_topology(file)
    lab = up(plan, f"bench-{plan.name}", warm=warm)
    try:
        tor = lab.subsystem("tor")
        ready = seconds = time.time() - started
        target = _served(lab)
        if target is not None:
            client = tor.clients[0]
            sockets = {client: tor.socks_path(client)}
            place = (target.address, target.port, target.path)
            summary = run_load(sockets, *place, size=target.size, seed=plan.seed, count=1)
            seconds = time.time() - started
            if summary.ok != 1:
                raise SystemExit(f"the client could not fetch: {dict(summary.outcomes)}")
        pids = [pid for node in plan.nodes if node.kind == "host" for pid in lab.pids(node.name)]
        return {
            "seconds": round(seconds, 2),
            "ready": round(ready, 2),
            "warm": tor.warm,
            "cpu": round(processor_seconds(pids) + _ended(), 1),
            "pss": round(proportional_mib(pids)),
            "rss": round(resident_mib(pids)),
            "load": round(os.getloadavg()[0], 1),
        }
    finally:
        lab.down()


def _served(lab: Lab) -> Target | None:
    """What can be fetched: from the first onion service of the topology, or from one of the network's."""
    if "onions" in lab.plan.sections:
        from testbed.tor.measure.experiment import onion_target

        onions = lab.subsystem("onions")
        return onion_target(onions, next(iter(onions.services)))
    return next(iter(lab.subsystem("tor").targets().values()), None)


def _ended() -> float:
    """Processor seconds of this process and of its children that have ended, such as chutney's own."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


if __name__ == "__main__":
    print(json.dumps(first_fetch(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "warm")))
