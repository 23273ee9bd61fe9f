"""Virtual and real time."""

from __future__ import annotations

import threading
import time

import pytest

from testbed.errors import WaitTimeout
from testbed.pool.agents.clock import SECOND, RealClock, VirtualClock

PATIENCE = 60


def test_virtual_time_jumps_from_action_to_action() -> None:
    clock = VirtualClock()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now()))

    def first() -> None:
        note("a")
        clock.at(5, lambda: note("late"))
        clock.at(20, lambda: note("c"))

    clock.at(20, lambda: note("b"))
    clock.at(10, first)
    clock.at(15, lambda: note("cancelled")).cancel()
    clock.at(31, lambda: note("beyond"))
    clock.run(30)
    assert seen == [("a", 10), ("late", 10), ("b", 20), ("c", 20)], "what is late is done at once; in order of asking"
    assert clock.now() == 30
    clock.run(31)
    assert seen[-1] == ("beyond", 31)


def test_watchers_look_after_every_action() -> None:
    clock = VirtualClock()
    looks: list[int] = []
    clock.watchers.append(lambda: looks.append(clock.now()))
    for at in (3, 1, 1):
        clock.at(at, lambda: None)
    clock.run(10)
    assert looks == [1, 1, 3]


def test_real_time_runs_actions_in_order_and_not_before_their_time() -> None:
    clock = RealClock(speed=1000)
    seen: list[tuple[str, int]] = []
    done = threading.Event()
    asked = clock.now()
    clock.at(asked + 50 * SECOND, lambda: done.set())
    clock.at(asked + 40 * SECOND, lambda: seen.append(("c", clock.now())))
    clock.at(asked + 20 * SECOND, lambda: seen.append(("b", clock.now())))
    clock.at(asked - 5, lambda: seen.append(("a", clock.now())))
    clock.at(asked + 30 * SECOND, lambda: seen.append(("cancelled", 0))).cancel()
    assert done.wait(PATIENCE)
    clock.close()
    assert [name for name, _ in seen] == ["a", "b", "c"]
    assert all(at >= asked + wait * SECOND for (_, at), wait in zip(seen, (0, 20, 40), strict=True))


def test_real_clocks_with_one_start_show_one_time() -> None:
    start = time.monotonic_ns() - 5 * 10**9
    clocks = [RealClock(speed=60, start=start) for _ in range(2)]
    first, second, third = clocks[0].now(), clocks[1].now(), clocks[0].now()
    assert 300 * SECOND <= first <= second <= third
    for clock in clocks:
        clock.close()


def test_an_error_of_an_action_comes_out_when_the_clock_is_closed() -> None:
    clock = RealClock()

    def fail() -> None:
        raise ZeroDivisionError

    clock.at(0, fail)
    clock._thread.join(PATIENCE)
    with pytest.raises(ZeroDivisionError):
        clock.close()


def test_an_action_that_does_not_end_is_said() -> None:
    clock, go = RealClock(), threading.Event()
    running = threading.Event()

    def wait() -> None:
        running.set()
        go.wait(PATIENCE)

    clock.at(0, wait)
    assert running.wait(PATIENCE)
    with pytest.raises(WaitTimeout, match="an action that is still running"):
        clock.close(timeout=0.05)
    go.set()
    clock.close()


def test_a_clock_may_be_closed_by_an_action() -> None:
    clock = RealClock()
    clock.at(0, clock.close)
    clock._thread.join(PATIENCE)
    assert not clock._thread.is_alive()
    clock.close()


def test_a_speed_that_is_none() -> None:
    with pytest.raises(ValueError, match="stands still"):
        RealClock(speed=0)
