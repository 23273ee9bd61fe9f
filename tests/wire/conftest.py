"""Fixtures for the wire: both cores, and networks that are down again when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from wire_traffic import MakeWorld, core_command

from bench.wire_world import World


@pytest.fixture(params=["c", "python"])
def core(request: pytest.FixtureRequest) -> str:
    """Each core in turn; ``best``, where a test asks for it, is the one that labs of this machine use."""
    name: str = request.param
    return name


@pytest.fixture
def make_world(core: str) -> Iterator[MakeWorld]:
    """Makes networks carried by ``core``."""
    command = core_command(core)
    with ExitStack() as stack:

        def make(topology: dict[str, Any], **options: Any) -> World:
            return stack.enter_context(World(topology, **{"command": command, **options}))

        yield make
