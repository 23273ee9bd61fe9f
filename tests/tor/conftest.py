"""Labs with a private Tor network for the tests of this folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def module_state() -> Iterator[Path]:
    """A state folder for all tests of a module. Labs in it end with the module."""
    folder = Path(tempfile.mkdtemp(prefix="tbtor-", dir="/var/tmp"))
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(folder))
        try:
            yield folder
        finally:
            from testbed.lab.down import down_all

            down_all()
            shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_network(module_state: Path, kept_networks: Path) -> Path:
    """The same, where labs of the topology ``publishing_world.NETWORK`` start warm if they come up with ``warm``."""
    (module_state / "warm").symlink_to(kept_networks)
    return module_state
