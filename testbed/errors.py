"""Errors that a user can cause or must act on: what happened, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Path = tuple[str | int, ...]
"""Where in a topology something stands: keys and list indices from the root, such as ``("links", 0, "delay")``."""


class TestbedError(Exception):
    """One clear message. ``where`` is a file position, a node or a path; ``remedy`` is what to do."""

    __test__ = False  # the name begins with "Test": keep pytest from collecting it
    exit_code = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  {self.remedy}" if self.remedy else head


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a topology, at ``path`` from its root. The loader turns the path into line and column."""

    path: Path
    message: str
    remedy: str = ""
    at_key: bool = False
    """The mark is the key of the last path element, not its value (unknown or duplicate keys)."""
    other: Path | None = None
    """Where the other party stands, if two things clash."""
    assumes: Literal["", "nodes", "links"] = ""
    """True only if all nodes, or all links, are known; left out while other mistakes hide some of them."""


class TopologyError(TestbedError):
    """A topology that cannot be used. ``lines`` holds every problem as ``file:line:column: message``."""

    exit_code = 2

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class PreflightError(TestbedError):
    """The machine lacks something that this lab needs. Nothing has been touched."""

    exit_code = 3


class ApplyError(TestbedError):
    """The kernel, the engine or a program did not take what the plan asks for. All of it has been undone."""


class WaitTimeout(TestbedError):
    """A condition did not come true in time: what was awaited, for how long, and what was seen instead."""

    def __init__(self, awaited: str, seconds: float, seen: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(f"waited {seconds:g} s for {awaited}; seen: {seen}", where=where, remedy=remedy)
        self.awaited = awaited
        self.seen = seen


def halves(error: Exception) -> tuple[str, str]:
    """What is wrong and what to do, of an error whose message is written as ``what is wrong; what to do``."""
    what, _, remedy = str(error).partition("; ")
    return what, remedy


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for a name that is none of ``known``: the one that is like it, else ``otherwise``."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else otherwise
