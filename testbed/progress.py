"""How long-running work tells what it is doing, whoever listens (terminal, pytest, run store)."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the state of named stages. Called from any thread; must return at once and not raise."""

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """``done`` of ``total`` items of ``stage`` are finished. A stage is over when ``done == total``."""


class Silent:
    """A listener that shows nothing."""

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Ignore the state."""
