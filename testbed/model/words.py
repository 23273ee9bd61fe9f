"""Names of things in a topology: what may be written, as pydantic types whose errors are in plain words."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
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


def check_paths(files: dict[str, str]) -> dict[str, str]:
    """``files`` if none of these paths is in a folder where another has a file; ValueError says which."""
    for path in files:
        for folder in PurePosixPath(path).parents:
            if str(folder) in files:
                raise ValueError(f"{str(folder)!r} is a file, so that {path!r} cannot be in it; rename one of them")
    return files


def check_path(text: str) -> str:
    """``text`` if it is the path of a file within a node's folder; ValueError says why not."""
    pure = PurePosixPath(text)
    if pure.is_absolute() or ".." in pure.parts or str(pure) != text or text == ".":
        raise ValueError(f"{text!r} is no path of a file inside a node's folder; write it as in `www/index.html`")
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

NodePath = Annotated[
    str,
    AfterValidator(check_path),
    WithJsonSchema({"type": "string", "examples": ["www/index.html"]}),
]
"""A file in a node's own folder, relative to it, without ``..``."""

NodeFiles = Annotated[dict[NodePath, str], AfterValidator(check_paths)]
"""Text files of a node, by path."""
