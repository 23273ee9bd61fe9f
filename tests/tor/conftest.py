"""Labs with a private Tor network for the tests of this folder, and handles of the lab of a module."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.tor.network import TorNetwork
    from testbed.tor.onion.services import OnionServices


@pytest.fixture(scope="module")
def shared_network(module_state: Path, kept_networks: Path) -> Path:
    """The same, where labs of the topology ``publishing_world.NETWORK`` start warm if they come up with ``warm``."""
    (module_state / "warm").symlink_to(kept_networks)
    return module_state


@pytest.fixture
def tor(lab: Lab) -> TorNetwork:
    """The network of the module's lab."""
    network: TorNetwork = lab.subsystem("tor")
    return network


@pytest.fixture
def onions(lab: Lab) -> OnionServices:
    """The services of the module's lab."""
    services: OnionServices = lab.subsystem("onions")
    return services
