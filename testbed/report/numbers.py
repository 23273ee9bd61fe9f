"""Numbers as a reader wants them: few digits, a unit, and the interval beside."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from testbed.measure.stats import Estimate

NEVER = "never"
NONE = "\u2013"
"""Stands for a figure that there is not: a dash."""


def number(value: float, digits: int = 3) -> str:
    """``digits`` significant ones, without exponent: 0.0123, 1.23, 123, 12 346."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return NEVER
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace(",", "\u202f")


def seconds(value: float) -> str:
    """1.23 s; what never ended says so."""
    text = number(value)
    return text if text in (NONE, NEVER) else f"{text} s"


def index(value: float) -> str:
    """An index or a ratio: 0.86."""
    return NONE if math.isnan(value) else NEVER if math.isinf(value) else f"{value:.2f}"


def percent(value: float) -> str:
    """56 %; NaN is a dash."""
    return NONE if math.isnan(value) else f"{100 * value:.0f} %"


def mebibytes(value: float) -> str:
    """1.23 MiB."""
    text = number(value / 2**20)
    return text if text == NONE else f"{text} MiB"


def duration(value: float) -> str:
    """12 s, 3 min 20 s, 1 h 02 min."""
    whole = round(value)
    if whole < 60:
        return seconds(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def estimate(figure: Estimate, form: Callable[[float], str]) -> str:
    """The value and its interval: ``3.10 s [3.02, 3.29]``."""
    if figure.low is None or figure.high is None:
        return form(figure.value)
    low, high = (form(end) for end in (figure.low, figure.high))
    unit = form(figure.value).partition(" ")[2]
    for_short = [end.removesuffix(f" {unit}") for end in (low, high)] if unit else [low, high]
    return f"{form(figure.value)} [{for_short[0]}, {for_short[1]}]"


def spread(figure: Estimate, form: Callable[[float], str]) -> str:
    """The interval alone, or that there is none."""
    if figure.low is None or figure.high is None:
        return "one repeat: no conclusion" if figure.n == 1 else NONE
    low, high = form(figure.low), form(figure.high)
    unit = high.partition(" ")[2]
    return f"{low.removesuffix(f' {unit}') if unit else low} to {high}"


def plural(count: int, word: str) -> str:
    """``1 repeat``, ``3 repeats``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def natural(name: str) -> list[str | int]:
    """Sort key by which shop2 comes before shop10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
