"""The voting interval keeps a run in the half of a time period in which clients fetch current descriptors."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.tor.protocol.timeperiod import (
    FIRST_VOTE_WITHIN,
    INTERVALS,
    MAX_INTERVAL,
    PREFERRED_INTERVAL,
    TimePeriods,
    choose_interval,
    require_current,
)
from testbed.tor.torrc import far_vote

START = 1_767_225_600
"""2026-01-01 00:00:00 UTC."""
TIMES = st.integers(START, START + 60 * 86400)
HOUR = 3600


def tors_answer(valid_after: int, interval: int) -> bool:
    """Whether tor is between SRV and TP: sr_state_get_start_time_of_current_protocol_run,
    hs_get_start_time_of_next_time_period and hs_in_period_between_tp_and_srv, step by step as they are written.
    """
    total_rounds = 24
    slot = (valid_after // interval) % total_rounds
    srv_start = valid_after - slot * interval
    length = total_rounds * interval // 60
    rotation = 12 * interval // 60
    number = (srv_start // 60 - rotation) // length
    tp_start = (number + 1) * length * 60 + 12 * interval
    return srv_start <= valid_after < tp_start


@given(TIMES, st.sampled_from(INTERVALS))
def test_the_half_is_tors(moment: int, interval: int) -> None:
    """Our short formula says what tor's own computation says."""
    assert TimePeriods(interval).clients_fetch_current(moment) is tors_answer(moment, interval)


@given(TIMES, st.sampled_from(INTERVALS))
def test_what_is_left_ends_at_the_half(moment: int, interval: int) -> None:
    """The last second of what is left is in the half, the next is not."""
    periods = TimePeriods(interval)
    left = int(periods.left(moment))
    assert periods.clients_fetch_current(moment) is (left > 0)
    if left > 0:
        assert periods.clients_fetch_current(moment + left - 1)
        assert not periods.clients_fetch_current(moment + left)


@given(TIMES, st.integers(0, 6 * HOUR))
@example(START + 86399, 3 * HOUR)
def test_every_run_of_six_hours_is_possible_at_every_time(moment: int, needed: int) -> None:
    """All of the run lies in the half, whenever it begins."""
    interval = choose_interval(moment, needed)
    for step in range(0, needed + 1, 60):
        assert TimePeriods(interval).clients_fetch_current(moment + min(step, needed - 1) if needed else moment)
    require_current(interval, moment, needed=needed)


@given(st.integers(0, 86399))
def test_every_second_of_the_day_has_room_for_the_default(second: int) -> None:
    """Three hours, on a day like any other."""
    interval = choose_interval(START + 5 * 86400 + second, 3 * HOUR)
    assert TimePeriods(interval).left(START + 5 * 86400 + second) >= 3 * HOUR


def start_of_run(valid_after: int, interval: int) -> int:
    """sr_state_get_start_time_of_current_protocol_run, from a consensus."""
    return valid_after - valid_after // interval % 24 * interval


@example(int(datetime(2026, 11, 30, 9, 40, 15, tzinfo=UTC).timestamp()), 11)  # the second vote came six minutes later
@given(TIMES, st.integers(0, FIRST_VOTE_WITHIN - 1))
def test_counters_go_on_growing_after_the_second_vote(now: int, until: int) -> None:
    interval, first = choose_interval(now, 3 * HOUR), now + until
    second = far_vote(interval, now, 3).moved_to(first).next_vote(first)
    if second // (24 * interval) == first // (24 * interval):
        assert start_of_run(second, interval) <= start_of_run(first, interval)


def test_the_public_networks_interval_is_preferred() -> None:
    """Shortly after midnight UTC twelve hours are left with it."""
    assert choose_interval(START + 60, 3 * HOUR) == PREFERRED_INTERVAL


@given(TIMES, st.sampled_from(INTERVALS))
def test_revision_counters_stay_in_range(moment: int, interval: int) -> None:
    """tor encrypts seconds since the previous shared-random run; its cipher takes up to 2**18."""
    periods = TimePeriods(interval)
    if periods.clients_fetch_current(moment):
        assert moment % (24 * interval) + 24 * interval + 1 <= 2**18


@given(st.sampled_from(INTERVALS), TIMES)
def test_periods_follow_each_other(interval: int, moment: int) -> None:
    """A period lasts 24 intervals; numbers grow by one at its end."""
    periods = TimePeriods(interval)
    assert periods.length == 24 * interval // 60
    assert periods.number(moment + 24 * interval) == periods.number(moment) + 1


def test_what_cannot_be_says_how_long_can() -> None:
    """The message names the longest time that is possible, and that one works."""
    with pytest.raises(TestbedError) as caught:
        choose_interval(START + 18 * HOUR, 23 * HOUR)
    message = str(caught.value)
    assert "tor.lifetime" in message
    minutes = int(message.split("at most ")[1].split("min")[0])
    assert choose_interval(START + 18 * HOUR, minutes * 60) <= MAX_INTERVAL


def test_a_run_that_lasted_too_long_is_told() -> None:
    """The message says when the half ended."""
    with pytest.raises(TestbedError, match=r"ended at 2026-01-01 12:00:00 UTC"):
        require_current(3600, START + 12 * HOUR + 5)
    with pytest.raises(TestbedError, match=r"ends at 2026-01-01 12:00:00 UTC, 2 h are needed"):
        require_current(3600, START + 11 * HOUR, needed=2 * HOUR)


def test_an_old_consensus_counts_and_not_the_clock() -> None:
    """Clients go by the consensus that they have; one of the other half is refused although the clock is right."""
    with pytest.raises(TestbedError):
        require_current(3600, START + 24 * HOUR + 5, valid_after=START + 23 * HOUR)
