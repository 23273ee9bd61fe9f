"""A small plan and runs on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from testbed.measure.store import Run
from testbed.plan.types import Node, Plan

settings.register_profile("testbed", deadline=None)  # no test fails because the machine was busy
settings.load_profile("testbed")


@pytest.fixture
def plan() -> Plan:
    """Two hosts and no links."""
    return Plan(name="two", seed=7, nodes=(Node(name="a"), Node(name="b")))


@pytest.fixture
def make_run(tmp_path: Path, plan: Plan) -> Callable[..., Run]:
    """Starts runs in a folder of the test's own."""

    def make(scenario: str = "trial", **options: object) -> Run:
        return Run.create(tmp_path / "runs", scenario, plan, seed=7, **options)  # type: ignore[arg-type]

    return make


@pytest.fixture
def run(make_run: Callable[..., Run]) -> Run:
    """One run, open."""
    return make_run()
