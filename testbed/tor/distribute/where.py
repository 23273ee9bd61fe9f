"""Where the service's descriptors go now: the responsible HSDirs, as the consensus in use says."""

from __future__ import annotations

import calendar
import re
import time

from testbed.errors import TestbedError
from testbed.tor.directory import Directory
from testbed.tor.protocol.hsdir import Consensus, Ring
from testbed.tor.protocol.timeperiod import ROUNDS

REASONABLY_LIVE = 24 * 3600
"""Seconds before and after a consensus's validity in which tor still works with it (REASONABLY_LIVE_TIME)."""

LEAD = 60.0
"""Seconds before the other half begins in which instances are let publish by themselves."""


def check_clock(directory: Directory, now: float) -> None:
    """TestbedError when tor itself would not use this consensus at the time ``now``: one of the clocks is wrong."""
    begins = directory.consensus.valid_after
    found = re.search(r"^valid-until (\S+ \S+)$", directory.consensus_text, re.MULTILINE)
    if found is None:
        raise TestbedError("the consensus does not say how long it is valid")
    ends = calendar.timegm(time.strptime(found.group(1), "%Y-%m-%d %H:%M:%S"))
    if begins - REASONABLY_LIVE <= now <= ends + REASONABLY_LIVE:
        return
    raise TestbedError(
        f"the clock says {_utc(now)}, but the consensus is valid from {_utc(begins)} to {_utc(ends)}",
        where="consensus",
        remedy="set this machine's clock; if it is right, that tor has lost contact with its network",
    )


def other_half(directory: Directory, ring: Ring, now: float) -> TestbedError | None:
    """Why instances that share the service's key cannot be distributed now; None if they can.

    In the half of a time period from TP to SRV clients ask for what a service calls its *next* descriptor. Its
    introduction points are other ones, and no control port shows them. The last minute before that counts as well: by
    then the instances must have published both descriptors themselves.
    """
    periods = directory.consensus.periods
    if ring.clients_fetch_current and periods.left(now) >= min(LEAD, periods.interval):
        return None
    cycle = periods.length * 60
    ends = (max(now, directory.consensus.valid_after) // cycle + 1) * cycle
    return TestbedError(
        f"until {_utc(ends)} clients ask for each instance's next descriptor, which no control port shows",
        where="time period",
        remedy="wait until then, or use instances with keys of their own (`publish: hybrid`), which work at any time",
    )


def run_starts(consensus: Consensus) -> tuple[int, int]:
    """When the shared-random runs began from which tor counts the revisions of the current and the next descriptor.

    Seconds since the epoch (tor: set_descriptor_revision_counter, sr_state_get_start_time_of_current_protocol_run).
    """
    interval = consensus.periods.interval
    present = consensus.valid_after - consensus.valid_after // interval % ROUNDS * interval
    return present - ROUNDS * interval, present


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
