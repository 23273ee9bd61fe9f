"""What a report is made of. A plugin's sections are lists of these; all text is escaped where it is shown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import RunReader


@dataclass(frozen=True)
class Text:
    """A paragraph; ``kind`` may be ``note`` for a remark set apart."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Facts:
    """Names and what they are."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Preformatted:
    """Text as it stands, behind a line that opens it."""

    title: str
    text: str


@dataclass(frozen=True)
class Table:
    """Cells are text already formatted. ``text`` holds the columns that are words, not numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    text: Collection[int] = (0,)
    folded: str = ""
    """Where given, the table is behind a line with this text."""
    console: bool = False
    """The table to show on the terminal when the run has ended."""


@dataclass(frozen=True)
class Figure:
    """A drawing, ``name`` in file names. The caption says what is shown and from how many repeats."""

    name: str
    draw: Callable[[], Drawing]
    """Makes it, in the style of all figures; called only where it is shown, so that a table alone costs little."""
    caption: str


Block = Text | Facts | Preformatted | Table | Figure


@dataclass(frozen=True)
class Section:
    """A part of a report under its own heading."""

    title: str
    blocks: Sequence[Block] = field(default_factory=list)


Maker = Callable[["RunReader"], Sequence[Section]]


@cache
def makers() -> dict[str, Maker]:
    """Installed functions that make sections, by the name of their entry point (``testbed.report_sections``).

    Each looks at the run and returns no section where it has nothing to say.
    """
    return {point.name: point.load() for point in entry_points(group="testbed.report_sections")}
