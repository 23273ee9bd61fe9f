"""States and moves of a server."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.pool.agents.machine import IllegalMove, Machine, Move, State

PUBLISHED = {
    ("ready", "service"),
    ("service", "initialising"),
    ("service", "suspended"),
    ("suspended", "initialising"),
    ("initialising", "ready"),
}


def in_state(state: State, limit: int | None = None) -> Machine:
    """A server that came there by legal moves."""
    machine = Machine("a", suspended_limit=limit)
    for move in (Move.PASS, Move.WIN, Move.HOLD):
        if machine.state is state:
            break
        machine.make(move, 10)
    assert machine.state is state
    return machine


def test_the_moves_are_those_published() -> None:
    assert {(move.source.value, move.target.value) for move in Move} == PUBLISHED


@pytest.mark.parametrize(("state", "move"), list(product(State, Move)), ids=lambda item: item.name.lower())
def test_every_move_from_every_state(state: State, move: Move) -> None:
    machine = in_state(state)
    if move.source is state:
        machine.make(move, 20)
        assert (machine.state, machine.since) == (move.target, 20)
    else:
        with pytest.raises(IllegalMove, match=f"a is {state.value} and cannot {move.name.lower()}"):
            machine.make(move, 20)
        assert machine.state is state


@given(st.lists(st.sampled_from(Move), max_size=40))
def test_whatever_is_tried_only_published_transitions_happen(moves: list[Move]) -> None:
    machine = Machine("a")
    for at, move in enumerate(moves):
        before = machine.state
        try:
            machine.make(move, at)
        except IllegalMove:
            assert machine.state is before
        else:
            assert (before.value, machine.state.value) in PUBLISHED


def test_serving_is_service_or_suspended() -> None:
    assert {state for state in State if in_state(state).serving} == {State.SERVICE, State.SUSPENDED}


def test_leaving_always_leads_to_initialising() -> None:
    for state in (State.SERVICE, State.SUSPENDED):
        machine = in_state(state)
        machine.leave(30)
        assert machine.state is State.INITIALISING
    for state in (State.READY, State.INITIALISING):
        with pytest.raises(IllegalMove):
            in_state(state).leave(30)


def test_the_timer_runs_in_the_suspended_state_only() -> None:
    assert [in_state(state, limit=5).deadline for state in State] == [None, None, None, 15]
    assert in_state(State.SUSPENDED).deadline is None, "without a limit it does not run at all"


def test_time_does_not_go_back() -> None:
    with pytest.raises(IllegalMove, match="before it became service"):
        in_state(State.SERVICE).make(Move.MIGRATE, 9)
