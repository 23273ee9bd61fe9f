"""The split of fresh clients over instances, and how many it takes to reach them all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.tor.measure.split import clients_for_all, coverage, expected_coverage, split

NAMES = ["a1", "a2", "a3"]


def test_split_counts_every_instance() -> None:
    """Those that nobody reached count with zero; names of others do not count."""
    found = split(["a1", "a1", "a2", "elsewhere", ""], NAMES)
    assert found.counts == {"a1": 2, "a2": 1, "a3": 0}
    assert found.shares == {"a1": pytest.approx(2 / 3), "a2": pytest.approx(1 / 3), "a3": 0.0}
    assert found.reached == 2
    assert found.fairness == pytest.approx(9 / 15)


def test_split_of_nobody() -> None:
    """No client: no share, no index."""
    found = split([], NAMES)
    assert found.reached == 0
    assert math.isnan(found.fairness)
    assert math.isnan(found.by_chance.value)


@pytest.mark.parametrize(("clients", "instances"), [(102, 3), (420, 60), (30, 6)])
def test_what_chance_alone_gives(clients: int, instances: int) -> None:
    """Few clients make any split look uneven: about M / (M + n - 1), with a range about it."""
    names = [f"a{number}" for number in range(instances)]
    found = split([names[place % instances] for place in range(clients)], names)
    assert found.fairness > 0.99
    assert found.by_chance.value == pytest.approx(clients / (clients + instances - 1), abs=0.01)
    assert found.by_chance.low is not None
    assert found.by_chance.high is not None
    assert found.by_chance.low < found.by_chance.value < found.by_chance.high <= 1


@given(st.lists(st.sampled_from([*NAMES, "", "other"])))
def test_coverage_is_the_number_of_names_so_far(reached: list[str]) -> None:
    """It rises by at most one a client, never falls, and ends at the number of different instances."""
    curve = coverage(reached, NAMES)
    assert len(curve) == len(reached)
    assert all(0 <= after - before <= 1 for before, after in zip([0, *curve], curve, strict=False))
    assert (curve[-1] if curve else 0) == len(set(reached) & set(NAMES))


@pytest.mark.parametrize("instances", [1, 3, 60])
def test_expected_coverage_is_what_a_simulation_gives(instances: int) -> None:
    """Mean and deviation of the formulas, against 3000 simulated rows of clients."""
    clients = 90
    drawn = np.random.default_rng(1).integers(instances, size=(3000, clients))
    mean, deviation = expected_coverage(instances, clients)
    for k in (1, 7, clients):
        seen = np.array([len(set(row[:k])) for row in drawn])
        assert mean[k - 1] == pytest.approx(seen.mean(), abs=0.15)
        assert deviation[k - 1] == pytest.approx(seen.std(), abs=0.15)


def test_clients_for_all() -> None:
    """n (1 + 1/2 + ... + 1/n): one client for one instance, three for two, 281 for sixty."""
    assert clients_for_all(1) == 1
    assert clients_for_all(2) == 3
    assert clients_for_all(60) == pytest.approx(280.8, abs=0.1)
