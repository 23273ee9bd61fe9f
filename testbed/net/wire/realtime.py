"""Time for programs that must keep it: a timer with absolute times, and scheduling before all other programs."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress

LEAST_NICE = -20
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A timerfd(2); its ``fd`` is ready when the time that was last set has come."""

    def __init__(self) -> None:
        self.fd: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        self._value = (ctypes.c_long * 4)()
        self._settime = _libc.timerfd_settime
        self._armed = 0

    def arm(self, due: int) -> None:
        """Set the time, nanoseconds of CLOCK_MONOTONIC."""
        if due != self._armed:
            self._armed = due
            self._value[2], self._value[3] = divmod(max(due, 1), 10**9)
            self._settime(self.fd, _ABSTIME, self._value, None)

    def over(self) -> None:
        """Take note that the time has come."""
        self._armed = 0
        with suppress(BlockingIOError):
            os.read(self.fd, 8)


def in_real_time(priority: int) -> bool:
    """Run the calling process before all others (SCHED_FIFO), but not what it starts; False, and merely a better nice
    value, where that is not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, LEAST_NICE)
        return False
    return True
