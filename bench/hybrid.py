"""Sixty instances behind one onion address: how many of them fresh clients reach."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figure import Figure

RUNS = 1


def measure(name: str) -> Figure:
    """Instances that served at least one client, of those in the name (``hybrid-60``)."""
    wanted = int(name.rpartition("-")[2])
    return Figure(name, "instances", float(wanted), tuple(float(_reached(wanted)) for _ in range(RUNS)))


def _reached(instances: int) -> int:
    from testbed.measure.reader import RunReader
    from testbed.scenario import run

    with tempfile.TemporaryDirectory() as folder:
        parameters = {"instances": str(instances), "publish": "hybrid"}
        outcome = run("onion_hybrid_60", parameters=parameters, runtime="process", runs=Path(folder))
        if not outcome.runs:
            raise SystemExit(f"onion_hybrid_60 ended with status {outcome.status}")
        fresh = RunReader(outcome.runs[0]).events("fresh")
        return len({event.detail["instance"] for event in fresh if event.detail["outcome"] == "ok"})
