"""Packets are lost, doubled and spoilt as often as was asked for, one by one, whichever engine does it.

Bounds are six standard deviations: by chance a test fails once in 500 million runs.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from link_engines import LinkEngine
from link_traffic import FRAME_HEADERS, Flow, is_share, padding_of
from link_world import impaired_link

from testbed.plan.types import Impairment

pytestmark = pytest.mark.root


def test_loss_in_one_direction(engine: LinkEngine) -> None:
    count = 4000
    with impaired_link(engine, forward=Impairment(loss=0.1)) as link:
        with Flow(link) as flow:
            flow.send(count)
            arrivals = flow.arrivals()
        assert is_share(count - len(arrivals), count, 0.1)
        lost = sorted(set(range(count)) - {arrival.number for arrival in arrivals})
        pairs = sum(later == former + 1 for former, later in itertools.pairwise(lost))
        assert is_share(pairs, count, 0.1 * 0.1, inflation=2), "losses depend on each other"
        with Flow(link, "b") as flow:
            flow.send(1000)
            assert len(flow.arrivals()) == 1000


def test_loss_in_bursts(engine: LinkEngine) -> None:
    """As much is lost as without bursts, but in runs of the mean length that was asked for."""
    count, loss, burst = 8000, 0.1, 5.0
    with impaired_link(engine, forward=Impairment(loss=loss, loss_burst=burst)) as link, Flow(link) as flow:
        flow.send(count)
        arrived = {arrival.number for arrival in flow.arrivals()}
    correlation = 1 - 1 / burst - loss / (1 - loss) / burst
    inflation = (1 + correlation) / (1 - correlation)
    assert is_share(count - len(arrived), count, loss, inflation=inflation)
    runs = [len(list(run)) for here, run in itertools.groupby(number in arrived for number in range(count)) if not here]
    deviation = (burst * (burst - 1) / len(runs)) ** 0.5
    assert sum(runs) / len(runs) == pytest.approx(burst, abs=6 * deviation)


def test_all_is_lost(engine: LinkEngine) -> None:
    with impaired_link(engine, forward=Impairment(loss=1.0)) as link, Flow(link) as flow:
        flow.send(200)
        assert flow.rest(quiet=0.3) == []


def test_each_packet_is_lost_by_itself(engine: LinkEngine) -> None:
    """The kernel carries many packets of a sender in one frame. If that frame were lost or kept whole, a thousandth of
    loss would slow TCP down ten times too little."""
    frames, packets = 40, 40
    with impaired_link(engine, forward=Impairment(loss=0.2)) as link, Flow(link) as flow:
        for _ in range(frames):
            flow.send_at_once(packets, size=1000)
        arrivals = flow.arrivals()
    assert is_share(len(arrivals), frames * packets, 0.8)
    by_frame = Counter(arrival.number // packets for arrival in arrivals)
    assert len(by_frame) == frames
    assert max(by_frame.values()) < packets


def test_duplicates(engine: LinkEngine) -> None:
    """Some packets come twice, none three times, none is lost."""
    count = 2000
    with impaired_link(engine, forward=Impairment(duplicate=0.2)) as link, Flow(link) as flow:
        flow.send(count)
        copies = Counter(arrival.number for arrival in flow.arrivals())
    assert len(copies) == count
    assert set(copies.values()) == {1, 2}
    assert is_share(sum(copies.values()) - count, count, 0.2)


def test_corruption_changes_one_bit(engine: LinkEngine) -> None:
    """Seen with datagrams that carry no checksum."""
    count, size = 1500, 1200
    with impaired_link(engine, forward=Impairment(corrupt=0.2)) as link, Flow(link, checksum=False) as flow:
        flow.send(count, size=size)
        arrivals = flow.rest()
    padding = padding_of(size)
    whole = [arrival for arrival in arrivals if len(arrival.payload) == len(padding)]  # not a flipped length
    changed = [(int.from_bytes(arrival.payload) ^ int.from_bytes(padding)).bit_count() for arrival in whole]
    assert set(changed) == {0, 1}
    in_payload = len(padding_of(size)) / (size + FRAME_HEADERS)
    assert is_share(changed.count(1), count, 0.2 * in_payload)


def test_corruption_is_found_by_checksums(engine: LinkEngine) -> None:
    """The receiver's kernel drops what was spoilt on the way, also where sender and receiver skip the checksum because
    they are on one machine."""
    count = 1500
    with impaired_link(engine, forward=Impairment(corrupt=0.2)) as link, Flow(link) as flow:
        flow.send(count, size=1200)
        arrivals = flow.arrivals()
    assert {arrival.payload for arrival in arrivals} == {padding_of(1200)}
    assert is_share(len(arrivals), count, 0.8)
