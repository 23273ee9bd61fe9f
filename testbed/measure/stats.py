"""Statistics of repeated measurements. Pure: the same numbers and seed give the same result.

Download times come with what did not finish. A time is *observed*, or *censored* (cut when the load ended: it would
have taken at least that long), or infinite (failed: it never finished). Leaving the last two out would make a bad
service look fast, so curves and medians use the Kaplan-Meier estimator (Kaplan and Meier, JASA 53, 1958).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 0.95
_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its interval. ``low`` and ``high`` are None where ``n`` is too small to give one."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1
    """How many values it comes from."""


@dataclass(frozen=True, slots=True)
class Time:
    """How long something took. With ``observed`` false it took longer than ``seconds``, or never ended (inf)."""

    seconds: float
    observed: bool = True


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones; NaN of nothing."""
    ordered = np.sort(np.asarray(values, dtype=float))  # NaN comes last
    if not len(ordered) or math.isnan(ordered[-1]):
        return math.nan
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low) / 2 + float(high) / 2  # halved first: a sum may overflow


def ecdf(times: Sequence[Time]) -> tuple[Floats, Floats]:
    """(t, share finished within t) at each observed time: the empirical distribution, by Kaplan-Meier."""
    seconds, observed = _sorted(times)
    if not len(seconds):
        return np.empty(0), np.empty(0)
    survival = _survival(np.ones((1, len(seconds))), observed)[0]
    t, share = seconds[observed], 1 - survival[observed]
    last = np.append(np.diff(t) > 0, True)[-len(t) :] if len(t) else np.empty(0, dtype=bool)  # the last of equal times
    return t[last], share[last]


def median_time(times: Sequence[Time]) -> float:
    """The time within which half has finished; inf if less than half ever did, NaN of nothing."""
    seconds, observed = _sorted(times)
    if not len(seconds):
        return math.nan
    return float(_median_rows(seconds, observed, np.ones((1, len(seconds))))[0])


def bootstrap_median(
    repeats: Sequence[Sequence[Time]], *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> Estimate:
    """Median of all times with its percentile bootstrap interval (Efron and Tibshirani 1993, chapter 13).

    Two stages: repeats are drawn with replacement, then times within each, for what is measured in one repeat shares
    its conditions. Of one repeat the interval speaks of the spread within it alone. ``n`` counts times.
    """
    pool, medians = _bootstrap(repeats, seed, resamples)
    value = median_time(pool)
    if len(pool) < 2:
        return Estimate(value, n=len(pool))
    low, high = _percentiles(medians, level)
    return Estimate(value, low, high, len(pool))


def bootstrap_ratio(
    above: Sequence[Sequence[Time]],
    below: Sequence[Sequence[Time]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Median of ``above`` over median of ``below`` with its percentile bootstrap interval, as ``bootstrap_median``."""
    return _compared(_ratio, above, below, seed, resamples, level)


def bootstrap_difference(
    above: Sequence[Sequence[Time]],
    below: Sequence[Sequence[Time]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> Estimate:
    """Median of ``above`` less median of ``below`` with its percentile bootstrap interval, as ``bootstrap_median``.

    NaN where both are infinite. No interval where either has but one time.
    """
    return _compared(_difference, above, below, seed, resamples, level)


def mean_interval(
    values: Sequence[float],
    *,
    level: float = LEVEL,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Mean over repeats with Student's t interval, cut to ``bounds``; no interval of fewer than two values."""
    data = np.asarray([value for value in values if not math.isnan(value)], dtype=float)
    if not len(data):
        return Estimate(math.nan, n=0)
    mean = float(data.mean())
    if len(data) < 2:
        return Estimate(mean, n=1)
    from scipy.special import stdtrit

    half = float(stdtrit(len(data) - 1, (1 + level) / 2)) * float(data.std(ddof=1)) / math.sqrt(len(data))
    return Estimate(mean, max(bounds[0], mean - half), min(bounds[1], mean + half), len(data))


def shares(amounts: Mapping[str, float]) -> dict[str, float]:
    """Each one's part of the whole, adding to 1; all NaN where the whole is nothing."""
    total = sum(amounts.values())
    return {name: amount / total if total > 0 else math.nan for name, amount in amounts.items()}


def share_intervals(repeats: Sequence[Mapping[str, float]], *, level: float = LEVEL) -> dict[str, Estimate]:
    """Mean share of each over repeats, with its interval. One that is missing in a repeat had nothing there."""
    names = list(dict.fromkeys(name for repeat in repeats for name in repeat))
    parts = [shares({name: repeat.get(name, 0.0) for name in names}) for repeat in repeats]
    return {name: mean_interval([part[name] for part in parts], level=level, bounds=(0.0, 1.0)) for name in names}


def ranked_share_intervals(repeats: Sequence[Mapping[str, float]], *, level: float = LEVEL) -> list[Estimate]:
    """Mean share of the largest, the second and so on of each repeat, whoever that was."""
    ranked = [sorted(shares(repeat).values(), reverse=True) for repeat in repeats]
    width = min((len(part) for part in ranked), default=0)
    return [mean_interval([part[rank] for part in ranked], level=level, bounds=(0.0, 1.0)) for rank in range(width)]


def jain(amounts: Sequence[float]) -> float:
    """Jain's fairness index: 1 where all get the same, 1/n where one gets everything; NaN where nobody gets anything.

    Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination, DEC-TR-301, 1984.
    """
    data = np.asarray(amounts, dtype=float)
    if not len(data) or not data.max() > 0:
        return math.nan
    data = data / data.max()  # keeps tiny amounts from vanishing in their squares
    return float(data.sum() ** 2 / (len(data) * (data**2).sum()))


def jain_interval(repeats: Sequence[Mapping[str, float]], *, level: float = LEVEL) -> Estimate:
    """Mean of Jain's index over repeats, with its interval."""
    return mean_interval([jain(list(repeat.values())) for repeat in repeats], level=level, bounds=(0.0, 1.0))


def unwrap(counter: Sequence[float]) -> Floats:
    """A cumulative counter from 0 at its first value, going on where it was set back (an interface made anew)."""
    data = np.asarray(counter, dtype=float)
    if not len(data):
        return data
    steps = np.diff(data)
    return np.concatenate([[0.0], np.cumsum(np.where(steps < 0, data[1:], steps))])


def growth(times: Sequence[float], counter: Sequence[float], start: float, end: float) -> float:
    """How much a cumulative counter grew from ``start`` to ``end``, in a straight line between samples."""
    if not len(times):
        return 0.0
    at = np.interp([start, end], np.asarray(times, dtype=float), unwrap(counter))
    return float(at[1] - at[0])


def rates(times: Sequence[float], counter: Sequence[float], width: float) -> tuple[Floats, Floats]:
    """(middle of each interval of ``width`` seconds, growth per second within it) over the time that was sampled."""
    t = np.asarray(times, dtype=float)
    if len(t) < 2 or t[-1] <= t[0]:
        return np.empty(0), np.empty(0)
    edges = np.append(np.arange(t[0], t[-1] - width * 1e-6, width), t[-1])
    return (edges[1:] + edges[:-1]) / 2, np.diff(np.interp(edges, t, unwrap(counter))) / np.diff(edges)


def _sorted(times: Sequence[Time]) -> tuple[Floats, NDArray[np.bool_]]:
    """Seconds and whether observed, by seconds; at equal seconds the observed come first, as is the convention."""
    ordered = sorted(times, key=lambda time: (time.seconds, not time.observed))
    return np.array([t.seconds for t in ordered], dtype=float), np.array([t.observed for t in ordered], dtype=bool)


def _survival(weights: Floats, observed: NDArray[np.bool_]) -> Floats:
    """Share that has not finished after each time, a row of weights a row; times in the order of ``_sorted``."""
    at_risk = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    finished = np.where(observed, weights, 0.0)
    factors: Floats = 1 - np.divide(finished, at_risk, out=np.zeros_like(weights), where=at_risk > 0)
    return np.cumprod(factors, axis=1, dtype=np.float64)


def _median_rows(seconds: Floats, observed: NDArray[np.bool_], weights: Floats) -> Floats:
    """Median of each row of weights. Where exactly half has finished: midway to the next time, as of plain numbers."""
    survival = _survival(weights, observed)
    drops = observed & (weights > 0)
    reached = drops & (survival <= 0.5 + _EPS)
    beyond = drops & (survival < 0.5 - _EPS)
    padded = np.append(seconds, math.inf)
    first = padded[np.where(reached.any(axis=1), reached.argmax(axis=1), -1)]
    second = padded[np.where(beyond.any(axis=1), beyond.argmax(axis=1), -1)]
    exact = (reached & ~beyond).any(axis=1)
    # Exactly half finished and no later time was observed: the first is all that is known.
    return np.where(exact & np.isfinite(second), first / 2 + second / 2, first)  # halved first: a sum may overflow


def _bootstrap(repeats: Sequence[Sequence[Time]], seed: int, resamples: int) -> tuple[list[Time], Floats]:
    """All times, and the medians of ``resamples`` two-stage resamples of them."""
    groups = [list(repeat) for repeat in repeats if len(repeat)]
    pool = [time for group in groups for time in group]
    if not pool:
        return pool, np.empty(0)
    order = sorted(range(len(pool)), key=lambda index: (pool[index].seconds, not pool[index].observed))
    seconds, observed = _sorted(pool)
    sizes = [len(group) for group in groups]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rng = np.random.default_rng(seed)
    medians = []
    batch = max(1, 2_000_000 // len(pool))
    for done in range(0, resamples, batch):
        rows = min(batch, resamples - done)
        drawn = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=rows)
        weights = np.zeros((rows, len(pool)))
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            weights[:, start : start + size] = rng.multinomial(drawn[:, index] * size, np.full(size, 1 / size))
        medians.append(_median_rows(seconds, observed, weights[:, order]))
    return pool, np.concatenate(medians)


def _compared(
    compare: Callable[[float, float], float],
    above: Sequence[Sequence[Time]],
    below: Sequence[Sequence[Time]],
    seed: int,
    resamples: int,
    level: float,
) -> Estimate:
    """What ``compare`` makes of two medians, with its percentile bootstrap interval."""
    pool_above, medians_above = _bootstrap(above, seed, resamples)
    pool_below, medians_below = _bootstrap(below, seed + 1, resamples)
    n = min(len(pool_above), len(pool_below))
    value = compare(median_time(pool_above), median_time(pool_below))
    if n < 2:
        return Estimate(value, n=n)
    compared = np.array([compare(a, b) for a, b in zip(medians_above, medians_below, strict=True)])
    compared = compared[~np.isnan(compared)]
    if not len(compared):
        return Estimate(value, n=n)
    low, high = _percentiles(compared, level)
    return Estimate(value, low, high, n)


def _percentiles(values: Any, level: float) -> tuple[float, float]:
    tails = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(values, tails, method="inverted_cdf")  # no interpolation: a value may be infinite
    return float(low), float(high)


def _ratio(above: float, below: float) -> float:
    return math.nan if not below > 0 or math.isinf(below) or math.isnan(above) else above / below


def _difference(above: float, below: float) -> float:
    return math.nan if math.isinf(above) and math.isinf(below) else above - below
