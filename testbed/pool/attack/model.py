"""What an attack does to a pool, in numbers. Pure. Times are seconds of pool time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testbed.measure.stats import LEVEL, RESAMPLES, Estimate


@dataclass(frozen=True, slots=True)
class Interval:
    """One stretch of service of one server."""

    server: str
    epoch: int
    start: float
    end: float
    compromised: float | None = None
    """When the intruder had it, if within the stretch."""
    detected: float | None = None
    """When a detector's report reached its agent, if after that."""
    requests: int = 0
    leaked: int = 0
    """Requests that it answered while the intruder had it."""

    @property
    def exposure(self) -> float:
        """How long it could be attacked."""
        return self.end - self.start

    @property
    def under(self) -> float:
        """How long it served while the intruder had it."""
        return 0.0 if self.compromised is None else self.end - self.compromised

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """A pool's intervals, taken together."""

    intervals: int
    exposure: Estimate
    """Mean length of an interval."""
    share: Estimate
    """Share of the time of service in which the intruder had the server."""
    compromises: int
    detected: int
    requests: int
    leaked: int


def delay(seed: int, pool: str, epoch: int, mean: float) -> float:
    """How long the intruder needs for the server of this epoch: exponential, and the same for the same arguments."""
    return random.Random(f"{seed}/{pool}/{epoch}").expovariate(1 / mean)


def chance(seed: int, what: str, number: int, probability: float) -> bool:
    """Whether a detector notices this time."""
    return random.Random(f"{seed}/{what}/{number}").random() < probability


def expected_share(mean: float, period: float) -> float:
    """The share of time under compromise if the server changes every ``period`` and an attack takes ``mean``.

    A server that was attacked from its first moment is compromised at t with probability 1 - exp(-t/mean); the mean of
    that over a period. With no change at all (``period`` infinite) it tends to 1.
    """
    if math.isinf(period):
        return 1.0
    x = period / mean
    return 1 + math.expm1(-x) / x


def expected_of(lengths: Sequence[float], mean: float) -> float:
    """The same for stretches of service of these lengths; NaN of none."""
    total = sum(lengths)
    return sum(length * expected_share(mean, length) for length in lengths if length) / total if total else math.nan


def summarise(intervals: Sequence[Interval], seed: int = 0) -> Summary:
    """The figures of one pool; their 95 % intervals are from drawing stretches of service again (bootstrap)."""
    lengths = np.array([interval.exposure for interval in intervals])
    under = np.array([interval.under for interval in intervals])
    return Summary(
        intervals=len(intervals),
        exposure=_resampled(lengths, np.ones(len(lengths)), seed),
        share=_resampled(under, lengths, seed),
        compromises=sum(interval.compromised is not None for interval in intervals),
        detected=sum(interval.detected is not None for interval in intervals),
        requests=sum(interval.requests for interval in intervals),
        leaked=sum(interval.leaked for interval in intervals),
    )


def _resampled(above: np.typing.NDArray[Any], below: np.typing.NDArray[Any], seed: int) -> Estimate:
    """Sum of one over sum of the other."""
    count = len(above)
    if not count or not below.sum():
        return Estimate(math.nan, n=count)
    value = float(above.sum() / below.sum())
    if count < 2:
        return Estimate(value, n=count)
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    ratios = above[drawn].sum(axis=1) / np.maximum(below[drawn].sum(axis=1), 1e-12)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high), count)
