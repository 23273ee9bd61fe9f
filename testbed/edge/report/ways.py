"""A drawing of the ways that requests took: a line of nodes for each, one network below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.report.figures import GREY, PAGE, PALETTE, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_LINE = 0.34
"""Inches a line."""


def ways_drawing(ways: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> Drawing:
    """``ways``: for each network its user's requests in order, each as the nodes on its way."""
    lines = [(network, way is all_ways[-1], list(way)) for network, all_ways in ways for way in all_ways]
    figure = drawing(PAGE, 0.35 + _LINE * len(lines))
    axes = figure.subplots()
    axes.set_axis_off()
    longest = max((len(way) for *_, way in lines), default=1)
    axes.set_xlim(-0.6, longest - 0.4)
    axes.set_ylim(-len(lines) + 0.4, 0.6)
    networks = [network for network, _ in ways]
    for row, (network, last, way) in enumerate(lines):
        colour = PALETTE[networks.index(network) % len(PALETTE)]
        axes.plot(
            range(len(way)), [-row] * len(way), color=colour, linewidth=1, linestyle="-" if last else "--", zorder=1
        )
        for column, node in enumerate(way):
            axes.text(
                column, -row, node, fontsize=7, ha="center", va="center", zorder=2,
                bbox={"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8},
            )  # fmt: skip
        if len(way) == 1:
            axes.text(0.5, -row, "nothing came", fontsize=7, color=GREY, va="center")
    return figure
