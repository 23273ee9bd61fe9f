"""A drawing of a plan: nodes and links with addresses, as SVG, PNG or PDF."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from testbed.errors import TestbedError
from testbed.plan.text import impairment_text, plan_summary
from testbed.plan.types import Link, Node, Plan
from testbed.report.graph_link import CHARACTER, FAINT, LINE, NOTE, draw_link, lanes_of
from testbed.report.layout import Place, place_nodes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")
MOST_BOXES = 24
"""Up to so many nodes are boxes with every address at its end of the link; more are dots with one label each."""

_ROUTER, _SWITCH, _HOST = "#33415c", "#7d8597", "#5b8e7d"
_PARTS = ("#d1495b", "#2e86ab", "#e6a12e", "#7b5ea7", "#3a7d44", "#c06c3e", "#5f6caf", "#a23b72", "#4c956c", "#888c46")
_DARK = "#1f2933"
_MARGIN = 0.35
_LONGEST = 18
"""Characters of a name in a box."""
_HALF_HEIGHT = 0.15
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
}


def draw(plan: Plan, path: Path) -> None:
    """Write the drawing of ``plan`` to ``path``; its suffix says how. Raises TestbedError if that cannot be done."""
    kind = path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise TestbedError(
            f"cannot draw to a file with suffix {path.suffix!r}", where=str(path), remedy="use .svg, .png or .pdf"
        )
    with mpl.rc_context({**_STYLE, "svg.hashsalt": plan.digest()}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # of a description; the rest is ASCII
        figure = figure_of(plan)
        try:
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            figure.savefig(path, format=kind, dpi=150, metadata=metadata)
        except OSError as error:
            raise TestbedError(
                f"cannot write the drawing: {error.strerror or error}",
                where=str(path),
                remedy="name another file with -o",
            ) from None


def figure_of(plan: Plan) -> Figure:
    """The drawing as a matplotlib figure, as large as it needs to be."""
    boxes = len(plan.nodes) <= MOST_BOXES
    graph: dict[str, list[str]] = {
        node.name: list(dict.fromkeys(link.peer(node.name).node for link in plan.links_of(node.name)))
        for node in plan.nodes
    }
    longest = max((len(_dot_label(plan, node)) for node in plan.nodes if len(graph[node.name]) == 1), default=0)
    places = (
        place_nodes(
            graph,
            edge=max(2.3, _need(plan.links, 2 * max(map(_half_width, plan.nodes), default=0) + 0.3)),
            spacing=1.3,
            label=0.2,
        )
        if boxes
        else place_nodes(graph, edge=max(1.3, _need(_inner(plan), 0.6)), spacing=0.17, label=longest * CHARACTER * 7)
    )
    colours = _colours(plan)
    left, right, low, high = _extent(plan, places, boxes)
    width = max(right - left + 2 * _MARGIN, 6.0)
    columns = max(1, int((width - 2 * _MARGIN) / 1.6))
    head = 0.65 + 0.2 * math.ceil(len(colours) / columns)
    height = high - low + 2 * _MARGIN + head
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    middle = (left + right) / 2
    axes.set_xlim(middle - width / 2, middle + width / 2)
    axes.set_ylim(low - _MARGIN, low - _MARGIN + height)
    if boxes:
        _draw_boxes(axes, plan, places, colours)
    else:
        _draw_dots(axes, plan, places, colours)
    _draw_head(figure, axes, plan, colours, columns)
    return figure


def _need(links: Sequence[Link], ends: float) -> float:
    """The length that the notes along the longest-worded of ``links`` need; ``ends`` is what its nodes take."""
    most = 0
    for link in links:
        addresses = [str(address) for end in (link.a, link.b) for address in end.addresses]
        traffic = (impairment_text(link.forward), impairment_text(link.backward))
        most = max(most, len(" ".join(addresses)) + 3, *(len(text) + 3 for text in traffic))
    return ends + most * CHARACTER * NOTE


def _inner(plan: Plan) -> list[Link]:
    """The links of which neither end is a leaf."""
    return [link for link in plan.links if min(len(plan.links_of(end.node)) for end in (link.a, link.b)) > 1]


def _extent(plan: Plan, places: dict[str, Place], boxes: bool) -> tuple[float, float, float, float]:
    """(left, right, low, high) of all that is drawn, labels included."""
    xs, ys = [0.0], [0.0]
    for node in plan.nodes:
        place = places[node.name]
        reach = 0.2 if boxes else 0.1 + len(_dot_label(plan, node)) * CHARACTER * 7
        half = _half_width(node) if boxes else 0.5
        xs += [place.x - half, place.x + half, place.x + reach * math.cos(place.outward)]
        ys += [place.y - 0.3, place.y + 0.3, place.y + reach * math.sin(place.outward)]
    return min(xs), max(xs), min(ys), max(ys)


def _half_width(node: Node) -> float:
    return max(0.33, 0.048 * min(len(node.name), _LONGEST) + 0.1)


def _part(node: Node) -> str:
    if node.kind != "host":
        return node.kind
    return " ".join(word for word in (node.subsystem, node.role) if word) or "host"


def _colours(plan: Plan) -> dict[str, str]:
    """A colour for each kind of node that there is, in the plan's order."""
    fixed = {"router": _ROUTER, "switch": _SWITCH, "host": _HOST}
    chosen: dict[str, str] = {}
    for node in plan.nodes:
        part = _part(node)
        if part not in chosen:
            own = sum(name not in fixed for name in chosen)
            chosen[part] = fixed.get(part) or _PARTS[own % len(_PARTS)]
    return chosen


def _draw_head(figure: Figure, axes: Axes, plan: Plan, colours: dict[str, str], columns: int) -> None:
    """Title, description and legend."""
    width, height = figure.get_size_inches()
    x, y = _MARGIN / width, 1 - _MARGIN / height
    figure.text(x, y, plan_summary(plan), fontsize=11, weight="bold", va="top", color=_DARK, parse_math=False)
    about = " ".join(plan.description.split())
    most = int(width * 13)
    about = about if len(about) <= most else f"{about[: most - 3]}..."
    figure.text(x, y - 0.23 / height, about, fontsize=9, va="top", color=FAINT, parse_math=False)
    numbers = Counter(_part(node) for node in plan.nodes)
    handles = [
        Line2D(
            [], [], linestyle="", marker=_marker(part), markersize=7, color=colour, label=f"{part} ({numbers[part]})"
        )
        for part, colour in colours.items()
    ]
    axes.legend(
        handles=handles,
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=(x, y - (0.46 if about else 0.25) / height),
        frameon=False,
        fontsize=8.5,
        borderpad=0,
        borderaxespad=0,
        handletextpad=0.1,
        columnspacing=1.2,
        labelcolor=_DARK,
    )


def _marker(part: str) -> str:
    return "s" if part == "switch" else "o"


def _draw_boxes(axes: Axes, plan: Plan, places: dict[str, Place], colours: dict[str, str]) -> None:
    widths = {node.name: _half_width(node) for node in plan.nodes}
    for link, lane in zip(plan.links, lanes_of(plan), strict=True):
        draw_link(axes, link, places, lane, lambda name, angle: _to_edge(widths[name], angle))
    for node in plan.nodes:
        place, colour, half = places[node.name], colours[_part(node)], widths[node.name]
        label = node.name if len(node.name) <= _LONGEST else f"{node.name[: _LONGEST - 3]}..."
        corners = "square,pad=0" if node.kind == "switch" else "round,pad=0,rounding_size=0.08"
        corner, size = (place.x - half, place.y - _HALF_HEIGHT), (2 * half, 2 * _HALF_HEIGHT)
        axes.add_patch(FancyBboxPatch(corner, *size, boxstyle=corners, facecolor=colour, edgecolor="none", zorder=5))
        axes.text(
            place.x, place.y, label, fontsize=9, weight="bold", color="white", ha="center", va="center_baseline",
            zorder=6, parse_math=False,
        )  # fmt: skip
        if node.loopback:
            axes.text(
                place.x, place.y - _HALF_HEIGHT - 0.04, _loopback_text(node), fontsize=6, color=FAINT, ha="center",
                va="top", zorder=6, parse_math=False,
            )  # fmt: skip
        if node.runtime == "container":  # a second outline
            corner = (place.x - half - 0.045, place.y - _HALF_HEIGHT - 0.045)
            axes.add_patch(
                FancyBboxPatch(
                    corner, 2 * half + 0.09, 2 * _HALF_HEIGHT + 0.09, facecolor="white", edgecolor=colour, linewidth=1,
                    boxstyle="round,pad=0,rounding_size=0.1", zorder=4,
                )
            )  # fmt: skip


def _to_edge(half_width: float, angle: float) -> float:
    """From the middle of a box to its edge."""
    across, up = abs(math.cos(angle)), abs(math.sin(angle))
    return min(half_width / across if across > 1e-6 else math.inf, _HALF_HEIGHT / up if up > 1e-6 else math.inf)


def _draw_dots(axes: Axes, plan: Plan, places: dict[str, Place], colours: dict[str, str]) -> None:
    inner = _inner(plan)
    for link, lane in zip(plan.links, lanes_of(plan), strict=True):
        a, b = places[link.a.node], places[link.b.node]
        if link in inner:
            draw_link(axes, link, places, lane, lambda name, angle: 0.25)
        else:  # the label of the leaf says what there is to say
            axes.plot([a.x, b.x], [a.y, b.y], color=LINE, linewidth=0.7, zorder=1)
    for node in plan.nodes:
        place, colour = places[node.name], colours[_part(node)]
        leaf = len(plan.links_of(node.name)) <= 1
        size = 6 if leaf else 11
        axes.plot([place.x], [place.y], marker=_marker(node.kind), markersize=size, color=colour, zorder=4)
        if not leaf:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
            axes.text(
                place.x, place.y - 0.17, _dot_label(plan, node), fontsize=7.5, weight="bold", ha="center", va="top",
                color=_DARK, bbox=box, zorder=6, parse_math=False,
            )  # fmt: skip
            continue
        angle = math.degrees(place.outward) % 360
        left = 90 < angle < 270
        axes.text(
            place.x + 0.09 * math.cos(place.outward),
            place.y + 0.09 * math.sin(place.outward),
            _dot_label(plan, node),
            fontsize=7,
            color=_DARK,
            rotation=angle - 180 if left else angle,
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
            zorder=6,
            parse_math=False,
        )


def _dot_label(plan: Plan, node: Node) -> str:
    """Name, address and what the node's link does to packets; of a node with many links only the name and a count."""
    links = plan.links_of(node.name)
    if len(links) != 1:
        return f"{node.name} ({len(links)} links)" if links else node.name
    addresses = [str(address.ip) for address in links[0].end(node.name).addresses]
    traffic = impairment_text(links[0].forward)
    if traffic != impairment_text(links[0].backward):
        traffic = f"{traffic or 'as it comes'} / {impairment_text(links[0].backward) or 'as it comes'}"
    return "  ".join(part for part in (node.name, *addresses, _loopback_text(node), traffic) if part)


def _loopback_text(node: Node) -> str:
    """The further addresses on ``lo``; of many, their number."""
    if len(node.loopback) > 2:
        return f"{len(node.loopback)} addresses on lo"
    return " ".join(f"lo {address.ip}" for address in node.loopback)
