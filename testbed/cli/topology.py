"""Commands that only read a topology: ``validate``, ``schema``, ``plan``, ``graph``. No root, no kernel, no engine."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(schema)


def schema() -> None:
    """Print the JSON Schema."""
