"""Waiting for what a test has set off."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.errors import WaitTimeout


def await_true(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until ``condition`` is true; WaitTimeout says what it gave last. The limit is for a machine that stalls."""
    deadline = time.monotonic() + seconds
    while not (seen := condition()):
        if time.monotonic() > deadline:
            raise WaitTimeout(what, seconds, f"{seen!r}")
        time.sleep(0.01)
