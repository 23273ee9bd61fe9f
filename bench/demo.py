"""The demo on a machine that is set up: from the command to the report."""

from __future__ import annotations

import tempfile

from bench.figure import Figure, seconds_of

RUNS = 1
ARGUMENTS = ["-m", "testbed", "run", "onion_load", "--topology", "topologies/demo.yaml"]
PARAMETERS = ["--param", "instances=1,3", "--param", "seconds=8s"]


def measure(name: str) -> Figure:
    """Seconds for the whole command that ``make demo`` ends with."""
    with tempfile.TemporaryDirectory() as folder:
        values = [seconds_of([*ARGUMENTS, *PARAMETERS, "--runs", folder])[0] for _ in range(RUNS)]
    return Figure(name, "s", 90.0, tuple(values))
