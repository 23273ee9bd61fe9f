"""Are two samples different? A rank test, exact where samples are small, and its correction for many figures. Pure.

Repeats are the units: what is measured within one repeat shares its conditions, so a thousand downloads of one repeat
are one value here, not a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

ALPHA = 0.05
_MOST_ARRANGEMENTS = 200_000


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p-value of the Mann-Whitney U test; 1 where either is empty. Values may be infinite, not NaN.

    Exact: of all ways to divide the values into two groups of these sizes, the share with a U at least as far from its
    mean. That holds with ties too. Above 200 000 ways the normal approximation with corrections for ties and continuity
    is taken instead. (Mann and Whitney, Annals of Mathematical Statistics 18, 1947.)
    """
    if not a or not b or len({*a, *b}) == 1:
        return 1.0
    # importing scipy.stats takes a second
    from scipy import stats

    if comb(len(a) + len(b), len(a)) > _MOST_ARRANGEMENTS:
        return float(stats.mannwhitneyu(a, b, method="asymptotic").pvalue)
    if len({*a, *b}) == len(a) + len(b):
        return float(stats.mannwhitneyu(a, b, method="exact").pvalue)
    ranks = stats.rankdata([*a, *b])
    return _exact([round(2 * rank) for rank in ranks], len(a))


def _exact(doubled: Sequence[int], size: int) -> float:
    """Share of the subsets of ``size`` whose rank sum is as far from the mean as that of the first ``size``.

    Ranks are doubled, since those of ties are halves. Subsets are counted by size and sum, not made one by one.
    """
    counts: list[dict[int, int]] = [{0: 1}, *({} for _ in range(size))]
    for rank in doubled:
        for taken in range(size, 0, -1):
            for total, ways in counts[taken - 1].items():
                counts[taken][total + rank] = counts[taken].get(total + rank, 0) + ways
    twice_mean = sum(doubled) * size
    far = abs(sum(doubled[:size]) * len(doubled) - twice_mean)
    extreme = sum(ways for total, ways in counts[size].items() if abs(total * len(doubled) - twice_mean) >= far)
    return extreme / comb(len(doubled), size)


def least_p(n: int, m: int) -> float:
    """The smallest p-value that samples of these sizes can have: when they are wholly apart. 1 of an empty one."""
    return min(1.0, 2 / comb(n + m, n)) if n and m else 1.0


def fewest_repeats(figures: int, alpha: float = ALPHA) -> int:
    """How many repeats each side needs so that a difference can be shown at all among so many figures."""
    number = 1
    while least_p(number, number) * figures > alpha:
        number += 1
    return number


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in their order (Holm, Scandinavian Journal of Statistics 6, 1979).

    NaN stays NaN and does not count.
    """
    order = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        corrected[index] = highest
    return corrected
