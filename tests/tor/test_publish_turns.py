"""In which order, and how far apart, instances of an onion service are started."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from testbed.tor.node import TorNode
from testbed.tor.onion.publish import Turn, one_by_one, one_late
from testbed.tor.torrc import Paths

NODES = [TorNode(f"shop{number}", "shop", "10.0.0.1", Paths(Path("/nowhere"))) for number in range(1, 7)]


def test_one_by_one() -> None:
    """The first at once, each other after the one before it."""
    assert one_by_one(NODES[:3], 2.0) == [Turn(NODES[0]), Turn(NODES[1], 2.0), Turn(NODES[2], 2.0)]


@given(st.integers(2, 6), st.data(), st.floats(0, 10), st.floats(0, 60))
def test_one_late(number: int, data: st.DataObject, stagger: float, late_by: float) -> None:
    """The late one comes last and by its own distance; the first of the others is never kept waiting."""
    which = data.draw(st.integers(1, number))
    turns = one_late(NODES[:number], stagger, which, late_by)
    assert turns[0].gap == 0
    assert turns[-1] == Turn(NODES[which - 1], late_by)
    assert [turn.gap for turn in turns[1:-1]] == [stagger] * (number - 2)
    assert {turn.node.name for turn in turns} == {node.name for node in NODES[:number]}
