"""Delay and jitter are what was asked for, whichever engine makes them.

A packet may never be early. How late it is depends also on how busy the machine is, so lateness is judged by quantiles.
"""

from __future__ import annotations

import itertools
import re

import pytest
from link_engines import LinkEngine
from link_traffic import EARLY, LATE, Flow, Late, assert_delay, quantile, repeated_if_late
from link_world import ImpairedLink, impaired_link

from testbed.plan.types import Impairment

pytestmark = pytest.mark.root


def ms(**values: float) -> Impairment:
    """An impairment with delay and jitter in milliseconds."""
    return Impairment(**{f"{key}_us": round(value * 1000) for key, value in values.items()})


def delays(link: ImpairedLink, source: str, *, count: int = 100, every: float = 0.002) -> list[float]:
    """One-way delays of datagrams from ``source``; all of them must arrive."""
    with Flow(link, source) as flow:
        flow.send(count, every=every)
        arrivals = flow.arrivals()
    assert [arrival.number for arrival in arrivals] == list(range(count))
    return [arrival.delay for arrival in arrivals]


@repeated_if_late
def test_c12_delay_is_one_way(engine: LinkEngine) -> None:
    """C12: each direction has its own delay, and that delay once."""
    with impaired_link(engine, forward=ms(delay=40), backward=ms(delay=15)) as link:
        assert_delay(delays(link, "a"), 0.040)
        assert_delay(delays(link, "b"), 0.015)


@repeated_if_late
def test_c12_round_trip_is_the_sum(engine: LinkEngine) -> None:
    """C12: ping shows both directions' delays together."""
    with impaired_link(engine, forward=ms(delay=40), backward=ms(delay=15)) as link:
        shown = link.run("a", ["ping", "-n", "-c", "30", "-i", "0.02", link.address("b")]).stdout
    times = [float(text) / 1000 for text in re.findall(r"time=([\d.]+) ms", shown)]
    assert len(times) == 30, shown
    assert_delay(times, 0.055)


@repeated_if_late
def test_a_direction_without_delay_has_none(engine: LinkEngine) -> None:
    with impaired_link(engine, forward=ms(delay=40)) as link:
        assert_delay(delays(link, "b"), 0)
        assert_delay(delays(link, "a"), 0.040)


@repeated_if_late
def test_jitter_is_uniform(engine: LinkEngine) -> None:
    """With reordering allowed each packet's delay is independent, evenly from delay - jitter to delay + jitter."""
    count, low, high = 600, 0.020, 0.040
    impairment = ms(delay=30, jitter=10).model_copy(update={"reorder": True})
    with impaired_link(engine, forward=impairment) as link, Flow(link) as flow:
        flow.send(count, every=0.001)
        arrivals = flow.rest()
    seen = [arrival.delay for arrival in arrivals]
    assert len(seen) == count
    assert min(seen) >= low - EARLY
    for share in (0.1, 0.5, 0.9):
        chance = 6 * (share * (1 - share) / count) ** 0.5 * (high - low)
        wanted, found = low + share * (high - low), quantile(seen, share)
        assert found >= wanted - chance
        if found > wanted + chance + LATE:
            raise Late(f"{share:.0%} of delays are up to {found * 1000:.1f} ms instead of {wanted * 1000:.1f} ms")
    overtaken = sum(later.number < former.number for former, later in itertools.pairwise(arrivals))
    assert overtaken > count / 10


@repeated_if_late
def test_jitter_keeps_the_order(engine: LinkEngine) -> None:
    """Without ``reorder`` a packet that draws a short delay waits for the one before it."""
    with impaired_link(engine, forward=ms(delay=30, jitter=20)) as link:
        seen = delays(link, "a", count=500, every=0.001)  # which looks at the order
    assert min(seen) >= 0.010 - EARLY
    assert max(seen) - min(seen) > 0.010
    if (found := quantile(seen, 0.5)) > 0.050 + LATE:
        raise Late(f"half of the delays are over {found * 1000:.1f} ms; the longest should be 50 ms")
