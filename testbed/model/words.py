"""Names of things in a topology: what may be written, as pydantic types whose errors are in plain words."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

MAX_NAME = 40
NAME_PATTERN = r"^[a-z]([a-z0-9-]*[a-z0-9])?$"
INTERFACE_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]*$"
_ENDPOINT_PATTERN = f"{NAME_PATTERN[:-1]}(:{INTERFACE_PATTERN[1:-1]})?$"

RESERVED_NAMES = frozenset({"all", "host", "lo", "self"})
"""Node names that would mean something else on a command line or in a namespace."""
RESERVED_INTERFACES = frozenset({"all", "default", "lo"})
"""Interface names that mean something else to the kernel."""

_NAME = re.compile(NAME_PATTERN[1:-1])
_INTERFACE = re.compile(INTERFACE_PATTERN[1:-1])


def check_name(text: str) -> str:
    """``text`` if it is a name; ValueError says why not."""
    if len(text) > MAX_NAME:
        raise ValueError(f"{text[:MAX_NAME]!r}... is {len(text)} characters long; a name has at most {MAX_NAME}")
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a name; use lower-case letters, digits and hyphens between them, beginning with a letter"
        )
    return text


def check_interface(text: str) -> str:
    """``text`` if an interface may be called so; ValueError says why not."""
    if len(text) > MAX_NAME or not _INTERFACE.fullmatch(text):
        raise ValueError(
            f"{text[:MAX_NAME]!r} is not the name of an interface; use letters, digits, `-` and `_`, beginning with a "
            f"letter, at most {MAX_NAME}"
        )
    if text in RESERVED_INTERFACES:
        raise ValueError(f"{text!r} is a reserved name of an interface; choose another one")
    return text


def check_endpoint(text: str) -> str:
    """``text`` if it is ``node`` or ``node:interface``; ValueError says why not."""
    node, colon, interface = text.partition(":")
    check_name(node)
    if colon:
        check_interface(interface)
    return text


Name = Annotated[
    str,
    AfterValidator(check_name),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "maxLength": MAX_NAME}),
]
"""Lower-case letters, digits and hyphens between them, beginning with a letter, at most 40 characters."""

Endpoint = Annotated[
    str,
    AfterValidator(check_endpoint),
    WithJsonSchema({"type": "string", "pattern": _ENDPOINT_PATTERN, "examples": ["web", "web:eth1"]}),
]
"""A node, or one of its interfaces as ``node:interface``."""
