"""Who takes over."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.pool.agents.competition import (
    Candidate,
    CentralController,
    Competition,
    NoRotation,
    Policy,
    RandomChoice,
    RoundRobin,
)

NAMES = ["a", "b", "c", "d"]
READY = st.lists(
    st.builds(Candidate, st.sampled_from(NAMES), st.integers(0, 5), st.integers(0, 3)),
    min_size=1,
    unique_by=lambda candidate: candidate.name,
)
POLICIES: list[Policy] = [Competition(), RoundRobin(NAMES), RandomChoice(1), CentralController(), NoRotation()]


def test_fewest_attacks_then_longest_ready_then_name() -> None:
    choose = Competition()
    assert choose.winner([Candidate("a", 0, 2), Candidate("b", 9, 1)], "c", 1) == "b"
    assert choose.winner([Candidate("a", 9, 1), Candidate("b", 3, 1)], "c", 1) == "b"
    assert choose.winner([Candidate("b", 3, 1), Candidate("a", 3, 1)], "c", 1) == "a"


def test_any_score_can_count() -> None:
    most_attacked = Competition(lambda candidate: -candidate.attacks)
    assert most_attacked.winner([Candidate("a", 0, 2), Candidate("b", 0, 1)], "c", 1) == "a"
    assert CentralController(most_attacked).winner([Candidate("a", 0, 2), Candidate("b", 0, 1)], "c", 1) == "a"


def test_round_robin_takes_the_next_that_is_ready() -> None:
    robin = RoundRobin(NAMES)
    ready = [Candidate("a", 0, 0), Candidate("d", 0, 0)]
    assert [robin.winner(ready, leaving, 1) for leaving in ("b", "c", "d", "a", None)] == ["d", "d", "a", "d", "a"]


def test_lots_fall_evenly_and_the_same_for_all() -> None:
    ready = [Candidate(name, 0, 0) for name in NAMES]
    lots = Counter(RandomChoice(5).winner(ready, None, epoch) for epoch in range(4000))
    assert all(850 < lots[name] < 1150 for name in NAMES)
    assert [RandomChoice(5).winner(ready, None, e) for e in range(50)] != [
        RandomChoice(6).winner(ready, None, e) for e in range(50)
    ]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@given(data=st.data(), ready=READY, leaving=st.none() | st.sampled_from(NAMES), epoch=st.integers(0, 100))
def test_the_winner_is_one_of_the_ready_whatever_their_order(
    policy: Policy, data: st.DataObject, ready: list[Candidate], leaving: str | None, epoch: int
) -> None:
    """That each server can compute the winner by itself rests on it."""
    winner = policy.winner(ready, leaving, epoch)
    assert winner in {candidate.name for candidate in ready}
    assert policy.winner(data.draw(st.permutations(ready)), leaving, epoch) == winner
