"""Quantities with mandatory units: durations, rates, sizes and fractions, as pydantic types.

In a model each is a plain number in the base unit named by the type; in YAML it is text with a unit.
Rates count decimal bits (``8mbit`` = 8 000 000 bit/s, as tc does), sizes take decimal and binary prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%µ]*)")

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
        raise ValueError(f"a {what} is text with a unit, such as {example}")
    match = _NUMBER.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{str(value)!r} is not a {what}; write a number and a unit, such as {example}")
    number, unit = match.groups()
    if unit not in units:
        known = ", ".join(units)
        problem = f"{str(value)!r} has no unit" if not unit else f"{unit!r} is not a unit of {what}"
        raise ValueError(f"{problem}; use one of {known}, such as {example}")
    return Decimal(number) * units[unit]


def _integer(what: str, units: Mapping[str, Decimal], example: str) -> Callable[[object], int]:
    def parse(value: object) -> int:
        amount = _quantity(value, what, units, example)
        if amount != amount.to_integral_value():
            raise ValueError(f"{str(value)!r} is finer than the smallest unit, {next(iter(units))}")
        return int(amount)

    return parse


parse_duration_us = _integer("duration", _DURATIONS, "20ms")
"""Text to microseconds; ValueError says what is wrong. Likewise the next two: bit/s and bytes."""
parse_rate_bps = _integer("rate", _RATES, "8mbit")
parse_size_bytes = _integer("size", _SIZES, "1MiB")


def parse_fraction(value: object) -> float:
    """A percentage such as ``0.5%`` to a fraction of 1."""
    fraction = _quantity(value, "percentage", _FRACTIONS, "0.5%")
    if fraction > 1:
        raise ValueError(f"{str(value)!r} is more than 100%")
    return float(fraction)


def parse_offset_us(value: object) -> int:
    """A time after the start of something, ``+30s``, to microseconds."""
    if not isinstance(value, str) or not value.startswith("+"):
        raise ValueError(f"{str(value)!r} is not an offset; write the time after the start, such as +30s")
    return parse_duration_us(value[1:])


def _schema(pattern: str, example: str) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    return WithJsonSchema(schema)


def _pattern(units: Mapping[str, Decimal], prefix: str = "") -> str:
    return rf"^{prefix}\d+(\.\d+)?\s*({'|'.join(units)})$"


Duration = Annotated[int, BeforeValidator(parse_duration_us), _schema(_pattern(_DURATIONS), "20ms")]
"""Microseconds."""
Offset = Annotated[int, BeforeValidator(parse_offset_us), _schema(_pattern(_DURATIONS, r"\+"), "+30s")]
"""Microseconds after a start."""
Rate = Annotated[int, BeforeValidator(parse_rate_bps), _schema(_pattern(_RATES), "8mbit")]
"""Bits per second."""
Size = Annotated[int, BeforeValidator(parse_size_bytes), _schema(_pattern(_SIZES), "1MiB")]
"""Bytes."""
Fraction = Annotated[float, BeforeValidator(parse_fraction), _schema(_pattern(_FRACTIONS), "0.5%")]
"""0 to 1."""
