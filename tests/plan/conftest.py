"""Settings of the property tests, and short cuts to plans."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from testbed.plan.load import load_text
from testbed.plan.types import Plan

settings.register_profile("testbed", deadline=None)  # a slow machine is no failure
settings.load_profile("testbed")


@pytest.fixture
def planned() -> Callable[[str], Plan]:
    """The plan of a topology given as text, without its first line ``name: lab``."""
    return lambda text: load_text(f"name: lab\n{text}")[1]
