"""Time periods of v3 onion services, and the voting interval that keeps a run in the right half of one. Pure.

A service keeps two descriptors. Between the start of a shared-random run and the next time period (SRV..TP) clients
fetch the one that the service calls *current*; in the other half (TP..SRV) they fetch its *next* (rend-spec-v3
[CLIENTFETCH], [SERVICEUPLOAD]). A control port shows only the current one, and introduction points of one do not serve
the other, so a run has to stay in SRV..TP.

In a testing network a period lasts 24 voting intervals and begins 12 intervals late (tor: get_time_period_length,
sr_state_get_phase_duration); which half it is depends on the consensus's valid-after alone. So the interval decides.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from testbed.errors import TestbedError

ROUNDS = 24
"""Voting intervals in a time period: two phases of the shared-random protocol with twelve rounds each."""
MAX_INTERVAL = 7200
"""Seconds. Beyond it, revision counters leave the range of tor's order-preserving encryption (2**18 s)."""
MIN_INTERVAL = 300
PREFERRED_INTERVAL = 3600
"""As in the public network: a period of 1440 minutes, which is all that an unmodified OnionBalance knows."""

FIRST_VOTE_WITHIN = 600
"""Seconds after its start within which a network has its first consensus, even on a busy machine."""

_DAY = 86400
_DIVIDING = [interval for interval in range(MAX_INTERVAL, MIN_INTERVAL - 1, -60) if _DAY % interval == 0]
_OTHERS = [interval for interval in range(MAX_INTERVAL, MIN_INTERVAL - 1, -60) if _DAY % interval]
INTERVALS = (PREFERRED_INTERVAL, *(interval for interval in _DIVIDING if interval != PREFERRED_INTERVAL), *_OTHERS)
"""In order of preference: tor likes intervals that divide a day; long ones disturb a run least."""


@dataclass(frozen=True, slots=True)
class TimePeriods:
    """Time periods in a network with this voting interval, in seconds."""

    interval: int

    @property
    def length(self) -> int:
        """Length of a period, minutes, as it goes into hashes."""
        return ROUNDS * self.interval // 60

    def number(self, valid_after: int) -> int:
        """Number of the period at a consensus (rend-spec-v3 [TIME-PERIODS])."""
        offset = ROUNDS // 2 * self.interval // 60
        return (valid_after // 60 - offset) // self.length

    def clients_fetch_current(self, valid_after: int) -> bool:
        """Whether a consensus lies in SRV..TP, where clients fetch a service's current descriptor."""
        return valid_after // self.interval % ROUNDS < ROUNDS // 2

    def left(self, moment: float) -> float:
        """Seconds from ``moment`` to the end of SRV..TP; not positive in the other half."""
        return ROUNDS // 2 * self.interval - moment % (ROUNDS * self.interval)


def initial_interval(interval: int) -> int:
    """Seconds between votes while there is no consensus: the longest that tor takes, it must divide 30 minutes."""
    return max(divisor for divisor in range(1, min(interval, 1800) + 1) if 1800 % divisor == 0)


def next_vote(valid_after: int, interval: int, offset: int) -> int:
    """When the consensus after one that is valid from ``valid_after`` on becomes valid, seconds since the epoch.

    Intervals are counted from midnight plus ``offset`` and end there (voting_sched_get_start_of_interval_after), so
    the first one is often shorter. In the last of a day whose length they do not divide tor may vote later.
    """
    since = (valid_after - offset) % _DAY
    return valid_after - since + min(_DAY, (since // interval + 1) * interval)


def counts_on(interval: int, now: float) -> bool:
    """Whether revision counters go on growing after the second vote of a network that first votes soon after ``now``.

    tor dates the start of a shared-random run back from a consensus by whole intervals, so that it lies as far into an
    interval as the consensus does (sr_state_get_start_time_of_current_protocol_run). The first consensus is at any
    time, the second ``offset`` after the beginning of an interval, and that may be further. Then the run begins later
    than before, the counter of a new descriptor (seconds since then, encrypted) is lower, and HSDirs that hold an
    earlier one refuse it.
    """

    def grows(first: int) -> bool:
        second = next_vote(first, interval, first % initial_interval(interval))
        run = ROUNDS * interval
        return second // run != first // run or second % interval <= first % interval

    return all(grows(first) for first in range(int(now), int(now) + FIRST_VOTE_WITHIN))


def choose_interval(now: float, needed: float) -> int:
    """The first of ``INTERVALS`` with which all of ``needed`` seconds from ``now`` (UTC) lie in SRV..TP.

    One whose second vote would set revision counters back is taken only where there is no other (``counts_on``).

    TestbedError when there is none, with the longest time that can be had now.
    """
    fitting = [interval for interval in INTERVALS if TimePeriods(interval).left(now) >= needed]
    if fitting:
        return next((interval for interval in fitting if counts_on(interval, now)), fitting[0])
    longest = max(TimePeriods(interval).left(now) for interval in INTERVALS)
    raise TestbedError(
        f"no voting interval keeps the next {_hours(needed)} in one half of an onion service's time period",
        where="tor.lifetime",
        remedy=f"set `tor.lifetime` to at most {int(longest // 60)}min, or start at another time of the day",
    )


def require_current(interval: int, now: float, *, needed: float = 0, valid_after: int | None = None) -> None:
    """Make sure that clients fetch current descriptors now and for ``needed`` seconds; TestbedError if they do not.

    ``valid_after`` is that of the consensus in use, where it is known.
    """
    periods = TimePeriods(interval)
    left = periods.left(now)
    current = periods.clients_fetch_current(int(now if valid_after is None else valid_after))
    if current and left >= needed:
        return
    ends = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now + left))
    tense = f"ends at {ends}, {_hours(needed)} are needed" if current and left > 0 else f"ended at {ends}"
    raise TestbedError(
        f"the part of the time period in which clients fetch an onion service's current descriptor {tense}",
        where="tor",
        remedy="bring the lab up again, with a larger `tor.lifetime` if it has to live longer",
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds >= 3600 else f"{seconds / 60:.3g} min"
