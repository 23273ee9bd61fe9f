"""Draws ``docs/images/tor-scale.svg`` from the rows of the benchmark ``tor-scale``."""

from __future__ import annotations

import json
from pathlib import Path

from bench.tor_scale import ROWS

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "tor-scale.svg"
PANELS = (("seconds", 1, "time until ready (s)"), ("cpu", 1, "processor time (s)"), ("mib", 1024, "memory (GiB)"))
"""Column, what it is divided by, and the axis."""


def draw(rows: Path = ROWS, output: Path = OUTPUT) -> None:
    """One panel a quantity, over the number of relays."""
    from matplotlib import rc_context

    from testbed.report.figures import color, drawing, style

    data = [json.loads(line) for line in rows.read_text().splitlines()]
    sizes = [row["relays"] for row in data]
    with style(), rc_context({"svg.hashsalt": output.stem}):
        figure = drawing(7.5, 2.4)
        panels = figure.subplots(1, len(PANELS), squeeze=False)[0]
        for axes, (column, unit, label) in zip(panels, PANELS, strict=True):
            axes.plot(sizes, [row[column] / unit for row in data], marker="o", color=color(0))
            axes.set_xlabel("relays")
            axes.set_ylabel(label)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw()
