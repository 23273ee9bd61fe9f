"""What commands print besides their result."""

from __future__ import annotations

import sys

from testbed.errors import TestbedError


def printable(text: str) -> str:
    """``text`` with control characters escaped, so that what a file says cannot steer the terminal."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


def print_error(error: TestbedError) -> None:
    """The message of ``error`` on stderr, red on a terminal. Its text is never taken for markup."""
    text = printable(str(error))
    if not sys.stderr.isatty():
        print(text, file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False).print(Text(text, style="red"), soft_wrap=True)
