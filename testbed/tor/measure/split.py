"""How a service is split over its instances, as fresh clients find it, and how soon all instances are found. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.measure.stats import LEVEL, RESAMPLES, Estimate, Floats, jain, shares


@dataclass(frozen=True, slots=True)
class Split:
    """Whom clients reached."""

    counts: dict[str, int]
    """Clients served, by instance; with zeros."""
    shares: dict[str, float]
    fairness: float
    """Jain's index of the counts."""
    by_chance: Estimate
    """The same if every client picked an instance by chance, all equally likely: mean and range of 95 %. It is below
    1 for few clients: with M clients and n instances about M / (M + n - 1)."""

    @property
    def reached(self) -> int:
        """How many instances served at least one client."""
        return sum(count > 0 for count in self.counts.values())


def split(reached: Iterable[str], instances: Sequence[str], *, seed: int = 0) -> Split:
    """The split of clients over ``instances``; ``reached`` is who served each client, other names do not count."""
    found = Counter(reached)
    counts = {name: found[name] for name in instances}
    total = sum(counts.values())
    if not total:
        return Split(counts, shares(counts), math.nan, Estimate(math.nan, n=0))
    even = np.full(len(counts), 1 / len(counts))
    drawn = [jain(row) for row in np.random.default_rng(seed).multinomial(total, even, size=RESAMPLES)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    by_chance = Estimate(float(np.mean(drawn)), float(low), float(high), total)
    return Split(counts, shares(counts), jain(list(counts.values())), by_chance)


def coverage(reached: Iterable[str], instances: Iterable[str]) -> list[int]:
    """Distinct instances reached by the first, the first two ... clients; a client that reached none counts too."""
    known, seen, curve = set(instances), set[str](), []
    for name in reached:
        if name in known:
            seen.add(name)
        curve.append(len(seen))
    return curve


def expected_coverage(instances: int, clients: int) -> tuple[Floats, Floats]:
    """(mean, standard deviation) of the instances reached by 1 ... ``clients`` clients that each pick one by chance.

    The coupon collector's problem: each instance is still unreached with probability (1 - 1/n)^k, each pair of them
    with (1 - 2/n)^k (Feller, An Introduction to Probability Theory, volume 1, chapter IX).
    """
    k = np.arange(1, clients + 1, dtype=float)
    one = (1 - 1 / instances) ** k
    two = np.maximum(0.0, 1 - 2 / instances) ** k
    variance = instances * one + instances * (instances - 1) * two - (instances * one) ** 2
    return instances * (1 - one), np.sqrt(np.maximum(0.0, variance))


def clients_for_all(instances: int) -> float:
    """How many clients it takes on average until each instance has been picked by chance: n (1 + 1/2 + ... + 1/n)."""
    return instances * sum(1 / rank for rank in range(1, instances + 1))
