"""Run benchmarks by name and print, last, one JSON object a line: name, value, unit, target, and the spread."""

from __future__ import annotations

import json
import sys
from importlib import import_module

BENCHMARKS = {
    "star-100": "bench.star",
    "star-300": "bench.star",
    "bringup-small": "bench.tor_bringup",
    "bringup-paper": "bench.tor_bringup",
    "bringup-warm": "bench.tor_bringup",
    "bringup-chutney": "bench.tor_bringup",
    "tor-scale": "bench.tor_scale",
    "demo": "bench.demo",
    "hybrid-60": "bench.hybrid",
    "onion-split": "bench.onion_split",
    "live-change": "bench.live_change",
    "cycles-200": "bench.cycles",
    "wire-accuracy": "bench.wire",
    "wire-accuracy-median": "bench.wire",
    "wire-throughput": "bench.wire",
    "wire-packets": "bench.wire",
    "wire-aggregate": "bench.wire",
    "wire-onion": "bench.wire_onion",
    "wire-restart": "bench.wire",
    "pool-virtual": "bench.pool",
    "pool-million": "bench.pool",
    "lfsr": "bench.pool",
    "rotation-5s": "bench.rotation",
    "migrate-gap": "bench.migrate",
    "migrate-500": "bench.migrate",
    "edge-gain": "bench.edge",
    "redirector-ratio": "bench.edge",
}
"""Module of each benchmark; its ``measure(name)`` gives a ``Figure``, or several."""


def main(names: list[str]) -> int:
    """Run the named benchmarks; the exit status says whether each was measured, not whether it was fast."""
    if names == ["all"]:
        names = list(BENCHMARKS)
    if not names or not set(names) <= BENCHMARKS.keys():
        print(f"usage: python -m bench NAME...\nNAME is one of {', '.join(BENCHMARKS)}, or all", file=sys.stderr)
        return 2
    figures = []
    for name in names:
        measured = import_module(BENCHMARKS[name]).measure(name)
        for figure in measured if isinstance(measured, list) else [measured]:
            figures.append(figure)
            print(f"{figure.name}: {figure.text()}", file=sys.stderr, flush=True)
    for figure in figures:
        print(json.dumps(figure.row()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
