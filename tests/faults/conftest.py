"""A lab for the tests of faults, up for all of them: hosts on a router, and two hosts on a switch."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fault_world import Watch, topology
from states import own_state

from testbed.faults.faults import Faults, own_faults
from testbed.lab.lab import Lab
from testbed.lab.up import up


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    """One lab a session, in a state folder of its own."""
    with own_state():
        yield up(topology(), f"faults-{os.getpid()}", owner=os.getpid())


@pytest.fixture
def lab(shared_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """The shared lab, without faults at the beginning and at the end of each test."""
    monkeypatch.setenv("TESTBED_STATE", str(shared_lab.folder.parents[1]))
    assert Faults(shared_lab).entries() == []
    yield shared_lab
    left = [entry.id for entry in Faults(shared_lab).entries()]
    Faults(shared_lab).heal_all()
    assert left == [], "the test left faults"


@pytest.fixture
def faults(lab: Lab) -> Iterator[Faults]:
    """Faults of this process."""
    made = own_faults(lab)
    yield made
    made.heal_all()


@pytest.fixture
def watch(lab: Lab) -> Watch:
    """Sees from outside what faults do."""
    return Watch(lab)
