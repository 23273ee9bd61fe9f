"""Plain (unquoted) YAML scalars: what every program reads alike is read, the rest must be quoted.

YAML 1.1 (yaml.org/spec/1.1, types bool, int, float, null, timestamp) and the core schema of YAML 1.2 differ on many
of them: ``no`` is a truth value in one and text in the other, ``0755`` is 493 or 755.
"""

from __future__ import annotations

import re

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_MOST_DIGITS = 18

_TRUTH_VALUES = {"y", "n", "yes", "no", "on", "off", "true", "false"}
_NULLS = {"~", "null"}
_NUMBERS = re.compile(
    r"""
    [-+]?0[0-9_]+                                    # octal or decimal
    | [-+]?0o[0-7_]+ | [-+]?0x[0-9a-f_]+ | [-+]?0b[01_]+
    | \+[0-9]+
    | [-+]?[0-9][0-9_]*                              # digits in groups
    | [-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:e[-+]?[0-9]+)?
    | [-+]?\.inf | \.nan
    | [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?   # base 60
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:.*)?")


def read_plain(text: str) -> tuple[str | int | float | bool | None, str, str]:
    """(value, what is wrong, what to do). If something is wrong, the value is the text itself."""
    if text in ("", "null"):
        return None, "", ""
    if text in ("true", "false"):
        return text == "true", "", ""
    if _INTEGER.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text), "", ""
    if _DECIMAL.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return float(text), "", ""
    quoted = f'quote it if text is meant: "{text[:40]}"'
    if text.lower() in _TRUTH_VALUES:
        return (
            text,
            f"{text} is a truth value to some programs and text to others",
            f"{quoted}; else write true or false",
        )
    if text.lower() in _NULLS:
        return text, f"{text} means nothing at all to some programs and text to others", f"{quoted}; else write null"
    if _NUMBERS.fullmatch(text):
        return (
            text,
            f"{text[:40]} is read in different ways by different programs",
            f"{quoted}; else write plain decimal digits",
        )
    if _DATE.fullmatch(text):
        return text, f"{text[:40]} is a date to some programs and text to others", quoted
    if text == "=":
        return text, "= alone is read in different ways by different programs", quoted
    return text, "", ""
