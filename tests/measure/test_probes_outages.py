"""Outages from outcomes: what is certain, what is guessed, and the uncertainty that the period gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.measure.outages import Attempt, Edge, outages


def row(text: str, period: float = 1.0, took: float = 0.1) -> list[Attempt]:
    """One attempt a character and period: ``.`` good, ``x`` failed."""
    return [Attempt(i * period, i * period + took, mark == ".") for i, mark in enumerate(text)]


def test_none() -> None:
    assert outages([]) == []
    assert outages(row("....")) == []


def test_one() -> None:
    (one,) = outages(row("..xxx.."))
    assert one.start == Edge(1.0, pytest.approx(2.1))
    assert one.end == Edge(4.0, pytest.approx(5.1))
    assert (one.lost, one.first_lost, one.last_lost, one.complete) == (3, 2.0, 4.0, True)
    assert one.seconds == pytest.approx(3.0)
    assert one.shortest == pytest.approx(1.9)
    assert one.longest == pytest.approx(4.1)
    assert one.start.uncertainty == pytest.approx(0.55)


def test_edges_that_were_not_seen() -> None:
    before, after = outages(row("xx..x"))
    assert (before.start, before.lost, before.longest) == (None, 2, None)
    assert before.seconds == pytest.approx(1.55)
    assert (after.end, after.lost, after.complete) == (None, 1, False)
    (all_of_it,) = outages(row("xxx"))
    assert (all_of_it.start, all_of_it.end, all_of_it.seconds, all_of_it.shortest) == (None, None, 2.0, 2.0)


def test_a_long_time_out_does_not_blur_the_start() -> None:
    """A request that waits 5 s in vain failed within the time in which others are answered."""
    attempts = [Attempt(0, 0.1, True), Attempt(1, 6, False), Attempt(2, 7, False), Attempt(3, 3.1, True)]
    (one,) = outages(attempts)
    assert one.start == Edge(0, pytest.approx(1.1))
    assert one.end == Edge(2, pytest.approx(3.1))


def test_order_of_arrival_does_not_matter() -> None:
    attempts = row(".x..xx.")
    assert outages(attempts[::-1]) == outages(attempts)


@given(
    st.lists(st.tuples(st.floats(0, 30), st.floats(0.5, 10)), max_size=4),
    st.floats(0.05, 2.0),
    st.floats(0.0, 0.04),
)
def test_the_truth_lies_in_the_ranges(downs: list[tuple[float, float]], period: float, took: float) -> None:
    """Asked of a service that is down in some intervals: each range holds the edge that it is about."""
    intervals: list[tuple[float, float]] = []
    for start, length in sorted(downs):
        if intervals and start <= intervals[-1][1] + 3 * period:
            intervals[-1] = intervals[-1][0], max(intervals[-1][1], start + length)
        else:
            intervals.append((start, start + length))
    ok = [
        Attempt(t, t + took, not any(a <= t < b or t <= a < t + took for a, b in intervals))
        for t in (k * period for k in range(int(60 / period)))
    ]
    seen = outages(ok)
    for one in seen:
        mine = [(a, b) for a, b in intervals if a <= one.last_lost + took and b >= one.first_lost]
        assert len(mine) == 1
        start, end = mine[0]
        if one.start is not None:
            assert one.start.earliest - 1e-9 <= start <= one.start.latest + 1e-9
        if one.end is not None:
            assert one.end.earliest - 1e-9 <= end <= one.end.latest + 1e-9
        assert one.shortest <= end - start + 1e-9
        if one.longest is not None:
            assert one.longest >= end - start - 1e-9
    long_enough = [1 for a, b in intervals if b - a > period + took]
    assert len(seen) >= len(long_enough)
