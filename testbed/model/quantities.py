"""Quantities with mandatory units: durations, rates, sizes and fractions, as pydantic types.

In a model each is a plain number in the base unit named by the type; in YAML it is text with a unit.
Rates count decimal bits (``8mbit`` = 8 000 000 bit/s, as tc does), sizes take decimal and binary prefixes.
``format_*`` gives the shortest text that parses back to the same number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

SECOND = 10**6
"""A second, in the base unit of durations."""

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%µ]*)")
_LONGEST = 24
"""Characters; a longer number is a slip of the hand, and need not be computed with."""
_LARGEST = 2**53
"""In base units: beyond it JSON readers lose digits. (104 days, 9 Pbit/s, 8 PiB.)"""

_DURATIONS = {
    "us": Decimal(1),
    "µs": Decimal(1),
    "ms": Decimal(1000),
    "s": Decimal(10**6),
    "min": Decimal(60 * 10**6),
    "h": Decimal(3600 * 10**6),
}
_RATES = {"bit": Decimal(1), "kbit": Decimal(10**3), "mbit": Decimal(10**6), "gbit": Decimal(10**9)}
_SIZES = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "KiB": Decimal(2**10),
    "MiB": Decimal(2**20),
    "GiB": Decimal(2**30),
}
_FRACTIONS = {"%": Decimal("0.01")}


def _quantity(value: object, what: str, units: Mapping[str, Decimal], example: str) -> Decimal:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise ValueError(f"not a {what}; write a number and a unit, such as {example}")
    text = str(value).strip()
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a {what}; write a number and a unit, such as {example}")
    number, unit = match.groups()
    if unit not in units:
        problem = f"{text[:40]!r} has no unit" if not unit else f"{unit!r} is not a unit of a {what}"
        known = f"use one of {', '.join(units)}" if len(units) > 1 else f"the unit is {next(iter(units))}"
        raise ValueError(f"{problem}; {known}, such as {example}")
    if len(number) > _LONGEST or Decimal(number) * units[unit] > _LARGEST:
        raise ValueError(f"{text[:40]!r} is more than can be counted; write a smaller {what}")
    return Decimal(number) * units[unit]


def _integer(
    what: str, units: Mapping[str, Decimal], example: str, least: int = 0, why: str = ""
) -> Callable[[object], int]:
    def parse(value: object) -> int:
        amount = _quantity(value, what, units, example)
        smallest = next(iter(units))
        if amount != amount.to_integral_value():
            raise ValueError(f"{str(value)!r} is not a whole number of {smallest}; leave out the smaller digits")
        if amount < least:
            raise ValueError(f"{str(value)!r} is less than {least}{smallest}; {why}")
        return int(amount)

    return parse


parse_duration_us = _integer("duration", _DURATIONS, "20ms")
"""Text to microseconds; ValueError says what is wrong and, after a semicolon, what would be right."""
parse_rate_bps = _integer(
    "rate", _RATES, "8mbit", 8, "a byte a second is the least; to stop all traffic use `loss: 100%`"
)
"""Text to bits per second, at least 8."""
parse_size_bytes = _integer("size", _SIZES, "1MiB")
"""Text to bytes."""


def parse_fraction(value: object) -> float:
    """A percentage such as ``0.5%`` to a fraction of 1."""
    fraction = _quantity(value, "percentage", _FRACTIONS, "0.5%")
    if fraction > 1:
        raise ValueError(f"{str(value)!r} is more than 100%; write 0% to 100%")
    return float(fraction)


def parse_offset_us(value: object) -> int:
    """A time after the start of something, ``+30s``, to microseconds."""
    if not isinstance(value, str) or not value.startswith("+"):
        raise ValueError(f"{str(value)[:40]!r} is not an offset; write the time after the start, such as +30s")
    return parse_duration_us(value[1:])


def _format(amount: int, units: Mapping[str, Decimal]) -> str:
    """In the largest unit that leaves at most three decimals, else in the smallest."""
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        scaled = amount / factor if amount else Decimal(0)
        if (scaled >= 1 or factor == 1) and scaled * 1000 == (scaled * 1000).to_integral_value():
            text = f"{scaled:f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{unit}"
    raise AssertionError("the smallest unit fits everything")


def format_duration_us(microseconds: int) -> str:
    """``20000`` to ``20ms``."""
    return _format(microseconds, {"us": Decimal(1), "ms": Decimal(1000), "s": Decimal(10**6)})


def format_offset_us(microseconds: int) -> str:
    """``30000000`` to ``+30s``."""
    return f"+{format_duration_us(microseconds)}"


def format_rate_bps(bits_per_second: int) -> str:
    """``8000000`` to ``8mbit``."""
    return _format(bits_per_second, _RATES)


def format_size_bytes(size: int) -> str:
    """``1048576`` to ``1MiB``."""
    binary = size and size % 1024 == 0
    return _format(size, {unit: factor for unit, factor in _SIZES.items() if ("i" in unit) == binary or unit == "B"})


def format_fraction(fraction: float) -> str:
    """``0.005`` to ``0.5%``."""
    text = f"{Decimal(repr(fraction)) * 100:f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def _pattern(units: Mapping[str, Decimal], prefix: str = "") -> str:
    return rf"^{prefix}[0-9]+(\.[0-9]+)?\s*({'|'.join(units)})$"


FORMATS: dict[str, Callable[[Any], str]] = {}
"""Pattern in the JSON Schema to the function that writes a number so that it fits."""


def _schema(pattern: str, example: str, form: Callable[[Any], str]) -> WithJsonSchema:
    FORMATS[pattern] = form
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    return WithJsonSchema(schema)


def _text(form: Callable[[Any], str]) -> PlainSerializer:
    """Text in JSON, so that what ``model_dump(mode="json")`` gives can be validated again; a number in Python."""
    return PlainSerializer(form, return_type=str, when_used="json")


Duration = Annotated[
    int,
    BeforeValidator(parse_duration_us),
    _text(format_duration_us),
    _schema(_pattern(_DURATIONS), "20ms", format_duration_us),
]
"""Microseconds."""
Offset = Annotated[
    int,
    BeforeValidator(parse_offset_us),
    _text(format_offset_us),
    _schema(_pattern(_DURATIONS, r"\+"), "+30s", format_offset_us),
]
"""Microseconds after a start."""
Rate = Annotated[
    int,
    BeforeValidator(parse_rate_bps),
    _text(format_rate_bps),
    _schema(_pattern(_RATES), "8mbit", format_rate_bps),
]
"""Bits per second."""
Size = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    _text(format_size_bytes),
    _schema(_pattern(_SIZES), "1MiB", format_size_bytes),
]
"""Bytes."""
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    _text(format_fraction),
    _schema(_pattern(_FRACTIONS), "0.5%", format_fraction),
]
"""0 to 1."""
