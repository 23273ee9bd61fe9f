"""Watches over a lab's wire supervisor, as that one watches over the guard: whichever of the two is killed is started
again by the other.

The guard forks supervisors from itself, with all that they need loaded already, so that one is back in milliseconds.
Run by ``charge.start_guard``.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from dataclasses import replace

from testbed.net import namespace
from testbed.net.wire import charge, protocol, state, supervisor
from testbed.net.wire.charge import NONE, Charge
from testbed.net.wire.child import PRIORITY
from testbed.net.wire.realtime import in_real_time

_LOOK_MS = 250
_STABLE = 10.0
"""A supervisor that has run for so many seconds is sound, and the next one starts at once."""
_FREE_RESTARTS = 3
_LONGEST_PAUSE = 5.0


def watch(it: Charge) -> None:
    """Until the lab is gone: whenever there is no supervisor, there is another one soon."""
    pid, failures = 0, 0
    started = time.monotonic()
    while True:
        if it.supervisor == NONE:
            started = time.monotonic()
            pid = _fork(it)
            if it.ready != NONE:
                os.close(it.ready)
            it = replace(it, ready=NONE, supervisor=os.pidfd_open(pid))
        if not _await_end(it):
            return
        os.close(it.supervisor)
        it = replace(it, supervisor=NONE, died=time.monotonic())
        status = os.waitpid(pid, 0)[1] if pid else None
        if status == 0 or not it.folder.exists():
            return  # it had nothing more to do
        age = it.died - started
        state.append_event(it.folder, "wire-died", pid=pid or None, how=f"its supervisor {_end(status)}", age=age)
        failures = failures + 1 if age < _STABLE else 1
        if failures > _FREE_RESTARTS:
            time.sleep(min(_LONGEST_PAUSE, 0.1 * 2.0 ** (failures - _FREE_RESTARTS)))


def _await_end(it: Charge) -> bool:
    """Wait for the supervisor's end; False if the lab's folder is gone before."""
    poll = select.poll()
    poll.register(it.supervisor, select.POLLIN)
    while not poll.poll(_LOOK_MS):
        if not it.folder.exists():
            return False
    return True


def _fork(it: Charge) -> int:
    """A supervisor, forked from this process; its process id."""
    us = os.pidfd_open(os.getpid())
    pid = os.fork()
    if pid:
        os.close(us)
        return pid
    status = 1
    try:
        supervisor.run(it, us)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _end(status: int | None) -> str:
    """How a process ended, in words; None where it was not our child."""
    if status is None:
        return "was ended"
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def main(arguments: list[str]) -> None:
    """Become a process of its own with nothing of the host's network in it, and watch."""
    it = charge.parse(arguments)
    if it.supervisor == NONE:
        if os.fork():
            os._exit(0)  # whoever started us need not wait for us
        namespace.unshare()
        counters = os.memfd_create("wire-counters", os.MFD_CLOEXEC)
        os.ftruncate(counters, protocol.TABLE)
        it = replace(it, counters=counters)
    in_real_time(PRIORITY + 2)  # it sleeps nearly always
    watch(it)


if __name__ == "__main__":
    main(sys.argv[1:])
