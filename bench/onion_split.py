"""How evenly clients are split over six instances, for each way to publish: Jain's index over fresh clients."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figure import Figure

RUNS = 2
TARGETS = {"naive": 0.0, "simultaneous": 0.0, "onionbalance": 0.5, "distributor": 0.9, "hybrid": 0.9}
"""What each way should reach at least; 1/6 is one instance that serves everybody, which is what naive copies give."""
CLIENTS = 150
"""Fresh clients each; an even random choice of so many has an index of 0.97."""


def measure(name: str) -> list[Figure]:
    """One figure each way, ``onion-split-WAY``."""
    from testbed.measure.reader import RunReader
    from testbed.scenario import run
    from testbed.tor.measure.split import split
    from testbed.tor.report.trials import trials

    parameters = {"instances": "6", "publish": ",".join(TARGETS), "fresh": str(CLIENTS), "seconds": "2s"}
    with tempfile.TemporaryDirectory() as folder:
        outcome = run("onion_distributor", repeats=RUNS, parameters={**parameters, "failover": "0s"}, runs=Path(folder))
        if not outcome.runs:
            raise SystemExit(f"onion_distributor ended with status {outcome.status}")
        found: dict[str, list[float]] = {way: [] for way in TARGETS}
        for trial in trials(RunReader(outcome.runs[0]), "split"):
            served = [fresh.instance for fresh in trial.fresh if fresh.ok]
            found[trial.word("publish")].append(split(served, trial.nodes).fairness)
    lacking = [way for way, values in found.items() if not values]
    if lacking:
        raise SystemExit(f"onion_distributor measured no split of {', '.join(lacking)}")
    return [Figure(f"{name}-{way}", "index", TARGETS[way], tuple(values)) for way, values in found.items()]
