"""Fixtures that all tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.plan.types import Plan


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need root fail clearly without it, rather than in the middle of something."""
    if os.geteuid() == 0:
        return
    for item in items:
        if any(item.get_closest_marker(name) for name in ("root", "engine", "tor")):
            item.add_marker(pytest.mark.xfail(run=False, reason="needs root", strict=False))


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder of the test's own, through which unprivileged programs may pass. Labs in it end with the test."""
    folder = Path(tempfile.mkdtemp(prefix="tbtest-", dir="/var/tmp"))
    folder.chmod(0o711)
    monkeypatch.setenv("TESTBED_STATE", str(folder))
    try:
        yield folder
    finally:
        from testbed.lab.down import down_all

        down_all()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """Plan of a topology given as keyword arguments, the way that YAML would say it."""

    def make(**topology: Any) -> Plan:
        plan, problems = expand(Topology.model_validate({"name": "test", **topology}))
        assert problems == []
        return plan

    return make
