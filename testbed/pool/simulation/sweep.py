"""Continuity and exposure against the period of the pseudo-random sequence, in virtual time, over many seeds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.measure.stats import Estimate, mean_interval
from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import Policy
from testbed.pool.report.published import (
    DETECTION,
    DETECTION_PERIOD,
    MIGRATION_COST,
    SERVERS,
    SWEEP_PERIODS,
    TIMER,
)
from testbed.pool.schedule.lfsr import PRIMITIVE, Lfsr
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, Given, How, PseudoRandom, Stream
from testbed.pool.simulation.account import Account, account
from testbed.pool.simulation.simulate import Trace, simulate

PUBLISHED_SHARE = DETECTION.count("1") / len(DETECTION)
"""Of 1 bits in the published detection sequence."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the sweep does not vary. Times in microseconds of pool time."""

    servers: tuple[str, ...] = SERVERS
    horizon: int = 10 * 3600 * SECOND
    """Of one seed."""
    timer: int | None = TIMER
    detection_share: float = 0.0
    """Of 1 bits in a detection sequence that is drawn for each seed; ``PUBLISHED_SHARE`` for one like the paper's."""
    detection_period: int = DETECTION_PERIOD
    combine: How = "or"
    cost: int = MIGRATION_COST
    """Of one migration."""
    reinitialise: int = 0
    suspended_limit: int | None = None
    polynomial: int = PRIMITIVE
    policy: Policy | None = None
    """The competition, unless given."""


@dataclass(frozen=True, slots=True)
class Point:
    """One period, over all seeds."""

    period: int
    """Microseconds."""
    continuity: Estimate
    """Share of time with service: the paper's efficiency."""
    exposure: Estimate
    """Mean service time of an interval, seconds."""
    suspended: Estimate
    """Share of time in which a server served on because nobody was ready."""
    migrations: int
    """Of all seeds."""


def sweep(
    periods: Sequence[int] = SWEEP_PERIODS, seeds: Iterable[int] = range(20), setting: Setting | None = None
) -> list[Point]:
    """A point for each period, with 95 % intervals over the seeds. ValueError if there are no seeds."""
    setting = setting or Setting()
    seeds = list(seeds)
    if not seeds:
        raise ValueError("a sweep needs a seed; give at least one, and several for intervals")
    return [_point(period, [run(period, seed, setting) for seed in seeds], setting) for period in periods]


def run(period: int, seed: int, setting: Setting) -> Trace:
    """One pool with this period and seed."""
    streams: dict[str, Stream] = {"pseudo-random": PseudoRandom(Lfsr.seeded(setting.polynomial, seed), period)}
    if setting.detection_share > 0:
        chance = random.Random(f"detection {seed}")
        count = setting.horizon // setting.detection_period + 1
        bits = [int(chance.random() < setting.detection_share) for _ in range(count)]
        streams["detection"] = Given(bits, setting.detection_period)
    return simulate(
        setting.servers,
        Schedule(Combined(streams, setting.combine), setting.timer),
        setting.horizon,
        policy=setting.policy,
        reinitialise=setting.reinitialise,
        suspended_limit=setting.suspended_limit,
    )


def _point(period: int, traces: Sequence[Trace], setting: Setting) -> Point:
    accounts: list[Account] = [account(trace, cost=setting.cost) for trace in traces]
    return Point(
        period,
        continuity=mean_interval([one.efficiency for one in accounts], bounds=(0.0, 1.0)),
        exposure=mean_interval([one.exposure / SECOND for one in accounts]),
        suspended=mean_interval([trace.suspended() / trace.horizon for trace in traces], bounds=(0.0, 1.0)),
        migrations=sum(len(trace.migrations) for trace in traces),
    )
