"""Settings of the property tests; two file servers for the tests of moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from moving import PoolWorld

from testbed.pool.lab.dispatch import Dispatcher

settings.register_profile("testbed", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # slow is no failure
settings.load_profile("testbed")


@pytest.fixture(scope="package")
def world() -> Iterator[PoolWorld]:
    """Two servers, plain links."""
    with PoolWorld(files={"index.html": 1024, "big": 8 << 20, "huge": 64 << 20}) as made:
        yield made


@pytest.fixture
def pool(world: PoolWorld) -> Iterator[Dispatcher]:
    """The first server serves, and has no connection left of the test before."""
    dispatcher = world.dispatcher
    assert dispatcher is not None
    dispatcher.assign(dispatcher.epoch + 1, "web1")
    yield dispatcher
    for name in world.names:
        dispatcher.move(name, name, "reset", 0)
