"""An attack in numbers: what is expected, what was seen, and how it is counted."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.pool.attack.account import intervals_of
from testbed.pool.attack.model import Interval, delay, expected_of, expected_share, summarise

seconds = st.floats(0.1, 1e4)


@given(seconds, seconds)
def test_expected_share(mean: float, period: float) -> None:
    """It rises with the period, falls with the intruder's time, and is a share."""
    share = expected_share(mean, period)
    assert 0 <= share <= 1
    assert share <= expected_share(mean, period * 1.5) + 1e-12
    assert share >= expected_share(mean * 1.5, period) - 1e-12


def test_expected_share_of_known_cases() -> None:
    """Half a mean: x/2 - x^2/6 + ..., one mean: 1/e; never and always."""
    assert expected_share(100, 100) == pytest.approx(1 / math.e)
    assert expected_share(1e6, 1) == pytest.approx(0.5e-6, rel=1e-3)
    assert expected_share(1, 1e6) == pytest.approx(1, abs=2e-6)
    assert expected_share(1, math.inf) == 1
    assert expected_of([100, 100], 100) == pytest.approx(1 / math.e)
    assert expected_share(100, 50) < expected_of([50, 200], 100) < expected_share(100, 200)
    assert math.isnan(expected_of([], 100))


def test_expected_share_is_what_the_intruders_clock_gives() -> None:
    """Many servers one after the other, each attacked from its first moment."""
    mean, period = 120.0, 60.0
    times = [delay(7, "web", epoch, mean) for epoch in range(5_000)]
    assert sum(times) / len(times) == pytest.approx(mean, rel=0.05)
    found = [
        Interval("a", epoch, epoch * period, (epoch + 1) * period, epoch * period + t if t < period else None)
        for epoch, t in enumerate(times)
    ]
    summary = summarise(found)
    assert summary.share.value == pytest.approx(expected_share(mean, period), rel=0.05)
    assert summary.share.low is not None
    assert summary.share.high is not None
    assert summary.share.low < expected_share(mean, period) < summary.share.high
    assert summary.exposure.value == pytest.approx(period)


def test_the_intruders_luck_is_the_seeds() -> None:
    """The same arguments, the same time; any other, another."""
    assert delay(1, "web", 3, 60) == delay(1, "web", 3, 60)
    others = {delay(2, "web", 3, 60), delay(1, "dns", 3, 60), delay(1, "web", 4, 60), delay(1, "web", 3, 60)}
    assert len(others) == 4


def event(t: float, what: str, server: str, **detail: Any) -> dict[str, Any]:
    """As the lab has it."""
    return {"t": t, "what": what, "node": server, **detail}


def test_stretches_of_service() -> None:
    """Compromised until it gave the service up, also if nobody took it; what lies outside of it does not count."""
    events = [
        event(0, "assigned", "a", epoch=1),
        event(4, "compromised", "a", epoch=1),
        event(5, "detected", "a"),
        event(6, "detected", "a"),
        event(10, "assigned", "b", epoch=2),
        event(11, "compromised", "a", epoch=1),  # too late: it is not in service any more
        event(12, "nobody", "b"),
        event(15, "assigned", "a", epoch=3),
    ]
    requests = {"a": [1, 2, 4.5, 10.5, 16, 30], "b": [11, 12.5]}
    found = intervals_of(events, requests, until=20)
    assert found == [
        Interval("a", 1, 0, 10, 4, 5, requests=4, leaked=2),  # the one at 10.5 was under way to a
        Interval("b", 2, 10, 12, None, None, requests=2, leaked=0),
        Interval("a", 3, 15, 20, None, None, requests=1, leaked=0),
    ]
    summary = summarise(found)
    assert (summary.compromises, summary.detected, summary.requests, summary.leaked) == (1, 1, 7, 2)
    assert summary.share.value == pytest.approx(6 / 17)


def test_nothing_happened() -> None:
    """No stretch, no figure."""
    assert intervals_of([], {}, 10) == []
    summary = summarise([])
    assert math.isnan(summary.share.value)
    assert summary.intervals == 0
