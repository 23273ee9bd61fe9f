"""Labs with a private Tor network for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def shared_network(module_state: Path, kept_networks: Path) -> Path:
    """The same, where labs of the topology ``publishing_world.NETWORK`` start warm if they come up with ``warm``."""
    (module_state / "warm").symlink_to(kept_networks)
    return module_state
