"""Types of settings that several faults share."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from testbed.model.quantities import format_duration_us, parse_duration_us
from testbed.model.words import Endpoint, Name, check_name

NodeName = Annotated[Name, Field(description="A node of the lab.")]
NodeNames = Annotated[tuple[Name, ...], Field(min_length=1, description="Nodes of the lab.")]
LinkEnds = Annotated[
    tuple[Endpoint, Endpoint], Field(description="The two ends of a link, each as `node` or `node:interface`.")
]
ServiceName = Annotated[Name | None, Field(description="One program of the node alone; otherwise all that run in it.")]
Port = Annotated[int, Field(strict=True, ge=1, le=65535, description="Port number.")]

_SKEW = re.compile(r"[+-].+")
_PER_SECOND = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*/\s*s")


def parse_skew_us(value: object) -> int:
    """A signed duration such as ``-90s`` to microseconds."""
    if not isinstance(value, str) or not _SKEW.fullmatch(value.strip()):
        raise ValueError(f"{str(value)[:40]!r} is not a shift of a clock; write sign, number and unit, such as +1h")
    text = value.strip()
    amount = parse_duration_us(text[1:])
    return amount if text[0] == "+" else -amount


def format_skew_us(microseconds: int) -> str:
    """``-90000000`` to ``-90s``."""
    return f"{'-' if microseconds < 0 else '+'}{format_duration_us(abs(microseconds))}"


def parse_per_second(value: object) -> float:
    """A frequency such as ``100/s`` to a number a second, above 0 and at most 100 000."""
    match = _PER_SECOND.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{str(value)[:40]!r} is not a number a second; write it with its unit, such as 100/s")
    number = float(match[1])
    if not 0 < number <= 100_000:
        raise ValueError(f"{str(value)[:40]!r} is out of range; write more than 0/s and at most 100000/s")
    return number


def check_target(value: object) -> str:
    """A node's name, an address, or a prefix such as ``10.1.0.0/16``."""
    text = str(value)
    if "." in text or ":" in text or "/" in text:
        try:
            ip_network(text, strict=True)
        except ValueError as error:
            raise ValueError(f"{error}; write a node, an address or a prefix such as 10.1.0.0/16") from None
        return text
    return check_name(text)


def _format_per_second(value: float) -> str:
    return f"{value:g}/s"


def limits(form: Callable[[Any], str], least: float, most: float | None = None) -> AfterValidator:
    """Bounds of a quantity, told in its own unit by ``form``."""

    def check(value: Any) -> Any:
        if value < least:
            raise ValueError(f"{form(value)} is too little; write at least {form(least)}")
        if most is not None and value > most:
            raise ValueError(f"{form(value)} is too much; write at most {form(most)}")
        return value

    return AfterValidator(check)


Skew = Annotated[
    int,
    BeforeValidator(parse_skew_us),
    PlainSerializer(format_skew_us, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[+-][0-9]+(\.[0-9]+)?\s*(us|µs|ms|s|min|h)$", "examples": ["-90s"]}
    ),
]
"""Microseconds, forward or back."""
PerSecond = Annotated[
    float,
    BeforeValidator(parse_per_second),
    PlainSerializer(_format_per_second, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*/\s*s$", "examples": ["100/s"]}),
]
"""Number a second."""
Target = Annotated[
    str, BeforeValidator(check_target), WithJsonSchema({"type": "string", "examples": ["web", "10.1.2.3"]})
]
"""A node (meaning its addresses), an address or a prefix."""


def is_node(target: str) -> bool:
    """Whether a ``Target`` is the name of a node."""
    return not any(sign in target for sign in ".:/")
