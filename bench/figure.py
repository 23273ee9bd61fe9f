"""What a benchmark gives, and how a whole process is timed."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """Repeated measurements of one thing; the value is their median."""

    name: str
    unit: str
    target: float | None
    """None: there is none, it is there to compare with."""
    values: tuple[float, ...]

    def row(self) -> dict[str, object]:
        """As one JSON object."""
        return {
            "name": self.name,
            "value": round(statistics.median(self.values), 3),
            "unit": self.unit,
            "target": self.target,
            "runs": len(self.values),
            "least": round(min(self.values), 3),
            "most": round(max(self.values), 3),
        }

    def text(self) -> str:
        """For people."""
        row = self.row()
        spread = f"median of {row['runs']}, {row['least']} to {row['most']}"
        aim = "" if self.target is None else f"; target {self.target:g}"
        return f"{row['value']} {self.unit} ({spread}{aim})"


def seconds_of(arguments: Sequence[str], *, timeout: float = 600) -> tuple[float, str]:
    """Wall time of ``python ARGUMENTS`` from nothing to its end, and what it printed. Its failure is ours."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=os.environ,
        stdin=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(
            f"python {' '.join(arguments)} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return seconds, done.stdout
