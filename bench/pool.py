"""Rotating server pools in virtual time, and how fast a shift register puts out bits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice

from bench.figure import Figure
from testbed.pool.agents.clock import SECOND
from testbed.pool.report.published import EXPERIMENT_2, HORIZON, SERVERS, TIMER
from testbed.pool.schedule.lfsr import PRIMITIVE, Lfsr
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, PseudoRandom
from testbed.pool.simulation.account import account
from testbed.pool.simulation.simulate import migrations, simulate

RUNS = 7
BITS = 10**8
MIGRATIONS = 10**6


def measure(name: str) -> Figure:
    """Milliseconds for the paper's experiment 2, seconds for a million migrations, or bits a second."""
    if name == "pool-virtual":
        return Figure(name, "ms", 10.0, tuple(seconds_of(experiment) * 1000 for _ in range(RUNS)))
    if name == "pool-million":
        return Figure(name, "s", 10.0, tuple(seconds_of(million) for _ in range(3)))
    return Figure(name, "bit/s", 1e8, tuple(BITS / seconds_of(register) for _ in range(RUNS)))


def seconds_of(work: Callable[[], None]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def experiment() -> None:
    """From the two sequences to the printed figures."""
    trace = simulate(SERVERS, EXPERIMENT_2.schedule(), HORIZON, reinitialise=20 * SECOND)
    printed = account(trace, total_cost=EXPERIMENT_2.cost).printed()
    assert (len(trace.migrations), printed["efficiency"]) == (EXPERIMENT_2.migrations, EXPERIMENT_2.efficiency)


def million() -> None:
    """Three servers, a bit every 60 s and the timer."""
    stream = PseudoRandom(Lfsr.seeded(PRIMITIVE, 1), 60 * SECOND)
    schedule = Schedule(Combined({"pseudo-random": stream}), TIMER)
    done = islice(migrations(SERVERS, schedule, reinitialise=20 * SECOND), MIGRATIONS)
    deque(done, maxlen=0)


def register() -> None:
    """Bits of a 63-stage register as an array of 0 and 1."""
    assert len(Lfsr.seeded(PRIMITIVE, 1).bits(BITS)) == BITS
