"""A link is changed while it is in use: what was to change does, at once; nothing else does; no packet is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from link_engines import LinkEngine
from link_traffic import EARLY, Arrival, Flow, assert_delay, assert_rate, is_share, repeated_if_late
from link_world import ImpairedLink, impaired_link

from testbed.plan.types import Impairment

pytestmark = pytest.mark.root

EVERY = 0.001


def stream(link: ImpairedLink, parts: list[tuple[Callable[[], object], int]], *, size: int = 100) -> list[Arrival]:
    """Send without a pause while changes are made: each part is a change and how many packets follow it."""
    with Flow(link) as flow:
        for change, count in parts:
            change()
            flow.send(count, size=size, every=EVERY)
        arrivals = flow.arrivals()
    sent = sum(count for _, count in parts)
    missing = sent - len({arrival.number for arrival in arrivals})
    assert missing <= link.engine.interruption / EVERY, "packets were lost by a change"
    numbers = [arrival.number for arrival in arrivals]
    assert numbers == sorted(set(numbers))
    return arrivals


def nothing() -> None:
    """No change: the first part of a stream."""


@repeated_if_late
def test_delay_changes_live(engine: LinkEngine) -> None:
    """Longer and shorter; packets under way keep their order and none is lost."""
    with impaired_link(engine, forward=Impairment(delay_us=30_000)) as link:
        arrivals = stream(
            link,
            [
                (nothing, 150),
                (lambda: link.change(forward=Impairment(delay_us=80_000)), 200),
                (lambda: link.change(forward=Impairment(delay_us=10_000)), 250),
            ],
        )
    by_number = {arrival.number: arrival.delay for arrival in arrivals}
    # after a shortening the new packets wait for those of before, for up to 70 ms
    for first, last, wanted in ((0, 150, 0.030), (150, 350, 0.080), (480, 600, 0.010)):
        assert_delay([by_number[number] for number in range(first, last)], wanted)


@repeated_if_late
def test_other_properties_stay(engine: LinkEngine) -> None:
    """A new delay leaves the loss, the duplicates and the other direction as they were."""
    before = Impairment(delay_us=20_000, loss=0.1, duplicate=0.1)
    with impaired_link(engine, forward=before, backward=Impairment(delay_us=15_000)) as link:
        link.change(forward=before.model_copy(update={"delay_us": 5_000}))
        with Flow(link) as flow:
            flow.send(3000)
            arrivals = flow.arrivals()
        with Flow(link, "b") as flow:
            flow.send(100, every=EVERY)
            back = flow.arrivals()
    numbers = {arrival.number for arrival in arrivals}
    # a packet that is both lost and doubled comes once
    assert is_share(3000 - len(numbers), 3000, 0.1 * 0.9)
    assert is_share(len(arrivals) - len(numbers), 3000, 0.1 * 0.9)
    assert_delay([arrival.delay for arrival in arrivals], 0.005)
    assert len(back) == 100
    assert_delay([arrival.delay for arrival in back], 0.015)


@repeated_if_late
def test_rate_stays_when_delay_changes(engine: LinkEngine) -> None:
    rate = 2_000_000
    with impaired_link(engine, forward=Impairment(delay_us=10_000, rate_bps=rate)) as link:
        link.change(forward=Impairment(delay_us=40_000, rate_bps=rate))
        with Flow(link) as flow:
            flow.send(500, size=1400, every=3 * EVERY)  # 3.9 Mbit/s
            arrivals = flow.arrivals()
    assert_rate(arrivals, 1400, rate, 0.040)
    assert arrivals[0].delay >= 0.040 - EARLY


@pytest.mark.parametrize("rate", [None, 20_000_000], ids=["plain", "only-rate"])
@repeated_if_late
def test_a_link_without_impairment_gets_one_and_loses_it(engine: LinkEngine, rate: int | None) -> None:
    """C11: neither the fault nor its healing costs a packet, beyond the interruption that the engine admits."""
    before = Impairment(rate_bps=rate)
    with impaired_link(engine, forward=before) as link:
        arrivals = stream(
            link,
            [
                (nothing, 200),
                (lambda: link.change(forward=before.model_copy(update={"delay_us": 40_000})), 200),
                (lambda: link.change(forward=before), 300),
            ],
            size=1000,
        )
    by_number = {arrival.number: arrival.delay for arrival in arrivals}
    assert_delay([by_number[number] for number in range(300, 400)], 0.040)
    assert_delay([by_number[number] for number in range(600, 700)], 0)
