"""Figures that can go into a paper: size in inches for its columns, one style, and files as SVG and PNG."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.measure.files import give_to_invoker, store_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLUMN = 3.5
"""Inches: the width of one column of a two-column paper."""
PAGE = 7.2
"""Inches: the width of both."""

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#000000", "#f0e442")
"""Eight colours that colour-blind readers can tell apart (Okabe and Ito, Color Universal Design, 2008)."""
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#777777"
_CHARACTERS_AN_INCH = 14
"""Of a legend."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.5,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",
    "text.parse_math": False,  # names are names, also with a dollar in them
}


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, for what is drawn and saved within."""
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def drawing(width: float, height: float) -> Drawing:
    """An empty drawing of this size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def shortened(name: str, most: int = 20) -> str:
    """A name as it stands in a figure: its beginning and end where it is longer than ``most``."""
    return name if len(name) <= most else f"{name[: most - 9]}\u2026{name[-8:]}"


def color(index: int) -> str:
    """The colour of the thing with this number, again from the start after eight."""
    return PALETTE[index % len(PALETTE)]


def ordered_colors(count: int) -> list[Any]:
    """``count`` colours from dark to light for values that have an order, such as numbers of instances."""
    from matplotlib import colormaps

    viridis = colormaps["viridis"]  # its lightness rises steadily: also in grey, and for colour-blind readers
    return [viridis(0.8 * index / max(1, count - 1)) for index in range(count)]


def legend_above(figure: Drawing, entries: Mapping[str, Any]) -> None:
    """One legend for all panels, above them: as many entries (label and what shows it) a line as fit."""
    if not entries:
        return
    widest = max(len(label) for label in entries)
    columns = int(figure.get_figwidth() * _CHARACTERS_AN_INCH / (widest + 6))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside upper center",
        ncols=max(1, min(columns, len(entries))),
    )


def entries(panels: Iterable[Axes]) -> dict[str, Any]:
    """The legend entries of all panels, each once."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            found.setdefault(label, handle)
    return found


def save(figure: Drawing, name: str, folder: Path) -> str:
    """Write ``name.svg`` and ``name.png`` into ``folder``; the SVG's text, fit to stand inside HTML.

    Raises ``StoreError`` if the folder cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = StringIO()
    # By the canvases, for savefig() draws everything once more, only to lay it out, and then lays it out again.
    with rc_context({"svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # everything stands where it should
    figure.set_dpi(220)
    svg = text.getvalue()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        FigureCanvasAgg(figure).print_png(folder / f"{name}.png")
    except OSError as error:
        raise store_error(error, folder) from error
    give_to_invoker(folder, folder / f"{name}.svg", folder / f"{name}.png")
    return inline(svg, name)


def inline(svg: str, name: str) -> str:
    """An SVG file's text as an element of an HTML page: nothing before it, and ids that no other figure has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
