"""The result on a terminal: one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.measure.downloads import downloads
from testbed.measure.reader import RunReader
from testbed.measure.stats import median_time
from testbed.report import blocks, core
from testbed.report.numbers import seconds

if TYPE_CHECKING:
    from rich.table import Table


def summary_table(run_path: Path) -> Table:
    """The table that a section marks for the console, plugins first, else downloads by step.

    Its text is never taken for markup.
    """
    run = RunReader(run_path)
    return as_rich(_marked(run) or _by_step(run))


def show(table: blocks.Table) -> None:
    """Print a table in full, whatever the width of the terminal: names that are cut cannot be used."""
    from rich.console import Console
    from rich.measure import Measurement

    console, shown = Console(), as_rich(table)
    wanted = Measurement.get(console, console.options.update(width=10_000), shown).maximum
    Console(width=max(console.width, wanted)).print(shown)


def as_rich(table: blocks.Table) -> Table:
    """A report's table for the terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(
        title=Text(_printable(table.caption)) if table.caption else None,
        title_justify="left",
        title_style="italic",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for index, cell in enumerate(table.head):
        word = index in table.text
        shown.add_column(Text(_printable(cell)), justify="left" if word else "right", no_wrap=word, overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(_printable(cell)) for cell in row))
    return shown


def _printable(text: str) -> str:
    """Control characters as escapes. The narrow space in large numbers, which Python calls unprintable, stays."""

    def shown(char: str) -> str:
        return char if char.isprintable() or char == "\u202f" else char.encode("unicode_escape").decode()

    return "".join(map(shown, text))


def _marked(run: RunReader) -> blocks.Table | None:
    for name, maker in {**blocks.makers(), **core.MEASURED}.items():
        try:
            sections = maker(run)
        except Exception as error:  # as in the report: a plugin that fails costs its own part only
            return blocks.Table((f"{name}: the result could not be made",), [(str(error),)])
        for section in sections:
            for block in section.blocks:
                if isinstance(block, blocks.Table) and block.console:
                    return block
    return None


def _by_step(run: RunReader) -> blocks.Table:
    got = downloads(run)
    if not got:
        return blocks.Table(("step", "length"), [(step.name, f"{step.seconds:.1f} s") for step in run.steps()])
    rows = []
    for step in run.steps():
        mine = [download for download in got if download.step == step.name]
        ok, failed = sum(download.ok for download in mine), sum(download.failed for download in mine)
        time = seconds(median_time([download.to_last_byte() for download in mine]))
        rows.append((step.name, f"{step.seconds:.1f} s", f"{ok} / {failed}", time))
    return blocks.Table(("step", "length", "downloads ok / failed", "median download time"), rows)
