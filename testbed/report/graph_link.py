"""How a link is drawn: a line with addresses at its ends and what it does to packets beside its middle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.plan.text import impairment_text
from testbed.plan.types import Link, Plan
from testbed.report.layout import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHARACTER = 0.0077
"""Width of a character of 1 point, inches."""
NOTE = 6.5
"""Size of the text along links, points."""
LINE = "#9aa5b1"
FAINT = "#52606d"
ALARM = "#9b2226"


def lanes_of(plan: Plan) -> list[int]:
    """For each link how many earlier ones join the same two nodes."""
    seen: Counter[frozenset[str]] = Counter()
    lanes: list[int] = []
    for link in plan.links:
        pair = frozenset((link.a.node, link.b.node))
        lanes.append(seen[pair])
        seen[pair] += 1
    return lanes


def draw_link(axes: Axes, link: Link, places: dict[str, Place], lane: int, edge: Callable[[str, float], float]) -> None:
    """A line with the addresses along it at its ends, and what it does to packets beside its middle."""
    a, b = places[link.a.node], places[link.b.node]
    dx, dy = b.x - a.x, b.y - a.y
    length = math.hypot(dx, dy) or 1.0
    dx, dy = dx / length, dy / length
    side = (lane + 1) // 2 * (0.3 if lane % 2 else -0.3)
    x, y = a.x - dy * side, a.y + dx * side
    angle = math.atan2(dy, dx)
    line = [(a.x, a.y), (b.x, b.y)]
    if side:
        first, last = edge(link.a.node, angle), length - edge(link.b.node, angle)
        line[1:1] = [(x + dx * along, y + dy * along) for along in (first, last)]
    axes.plot([at[0] for at in line], [at[1] for at in line], color=LINE, linewidth=1.2, zorder=1)
    turned = not -math.pi / 2 < angle <= math.pi / 2
    rotation = math.degrees(angle) + (180 if turned else 0)

    def note(along: float, across: float, text: str, colour: str) -> None:
        up = -across if turned else across
        _note(axes, x + dx * along - dy * up, y + dy * along + dx * up, text, colour, rotation)

    for end, start, sign in ((link.a, 0.0, 1), (link.b, length, -1)):
        text = " ".join(str(address) for address in end.addresses)
        near = edge(end.node, angle) + 0.1 + len(text) * CHARACTER * NOTE / 2
        note(start + sign * min(near, length / 2), 0, text, FAINT)
    there, back = impairment_text(link.forward), impairment_text(link.backward)
    if there == back:
        note(length / 2, 0.12, there, ALARM)
    else:
        note(length / 2, 0.12, _directed(there, not turned), ALARM)
        note(length / 2, -0.12, _directed(back, turned), ALARM)


def _directed(text: str, rightwards: bool) -> str:
    return f"{text or 'as it comes'} \u2192" if rightwards else f"\u2190 {text or 'as it comes'}"


def _note(axes: Axes, x: float, y: float, text: str, colour: str, rotation: float) -> None:
    if text:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.9}
        axes.text(
            x, y, text, fontsize=NOTE, color=colour, ha="center", va="center", rotation=rotation,
            rotation_mode="anchor", bbox=box, zorder=3, parse_math=False,
        )  # fmt: skip
