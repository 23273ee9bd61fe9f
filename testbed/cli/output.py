"""How commands print: errors, tables, plain data, and nothing that could steer the terminal."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from testbed.report.blocks import Block


def printable(text: str) -> str:
    """``text`` with control characters escaped, so that what a file says cannot steer the terminal."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


def print_error(error: TestbedError) -> None:
    """The message of ``error`` and its notes on stderr, red on a terminal. Its text is never taken for markup."""
    text = printable("\n".join([str(error), *getattr(error, "__notes__", ())]))
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False).print(Text(text, style="red"), soft_wrap=True)


def print_whole(table: RichTable) -> None:
    """Print a table in full, whatever the width of the terminal: names that are cut cannot be copied."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    wanted = Measurement.get(console, console.options.update(width=10_000), table).maximum
    Console(width=max(console.width, wanted)).print(table)


def show_blocks(blocks: Sequence[Block]) -> None:
    """Print what a report is made of on the terminal."""
    from testbed.report.blocks import Preformatted, Table, Text
    from testbed.report.console import show

    for block in blocks:
        if isinstance(block, Table):
            show(block)
        elif isinstance(block, Text | Preformatted):
            print(printable(block.text))


def print_json(value: Any, **more: Any) -> None:
    """A value, data classes included, and ``more`` beside its fields."""
    print(json.dumps(_plain(value) | more if more else _plain(value), indent=1))


def _plain(value: Any) -> Any:
    """Data classes as plain JSON; a number that there is not is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
