"""The rank test against scipy and against known values; Holm's correction."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.measure import stats
from testbed.measure.stats import Time, bootstrap_difference
from testbed.measure.twosample import fewest_repeats, holm, least_p, mann_whitney


def brute(a: list[float], b: list[float]) -> float:
    """The definition: every division of the values, one by one."""
    values = [*a, *b]

    def u(chosen: tuple[int, ...]) -> float:
        mine = [values[index] for index in chosen]
        others = [value for index, value in enumerate(values) if index not in chosen]
        return sum((x > y) + (x == y) / 2 for x in mine for y in others) - len(a) * len(b) / 2

    seen = abs(u(tuple(range(len(a)))))
    ways = list(combinations(range(len(values)), len(a)))
    return sum(abs(u(way)) >= seen - 1e-9 for way in ways) / len(ways)


def test_wholly_apart() -> None:
    assert mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert mann_whitney([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / 70)
    assert mann_whitney([1, 1, 1, 1], [2, 2, 2, 2]) == pytest.approx(2 / 70)
    assert mann_whitney([1, 2, 3], [math.inf] * 3) == pytest.approx(0.1)


def test_nothing_to_tell() -> None:
    assert mann_whitney([], [1, 2]) == 1
    assert mann_whitney([1, 1], [1, 1]) == 1
    assert mann_whitney([1], [2]) == 1


@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, math.inf]), min_size=1, max_size=4),
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0]), min_size=1, max_size=4),
)
def test_exact_with_ties(a: list[float], b: list[float]) -> None:
    assert mann_whitney(a, b) == pytest.approx(brute(a, b))
    assert mann_whitney(b, a) == pytest.approx(mann_whitney(a, b))


def test_large_samples_are_approximated() -> None:
    assert mann_whitney(list(range(0, 100, 2)), list(range(1, 101, 2))) > 0.5
    assert mann_whitney(list(range(50)), list(range(40, 90))) < 1e-9


def test_what_repeats_can_show() -> None:
    assert [least_p(n, n) for n in (0, 1, 2, 3)] == [1.0, 1.0, pytest.approx(1 / 3), pytest.approx(0.1)]
    assert fewest_repeats(1) == 4
    assert fewest_repeats(10) == 6
    assert least_p(1, 39) == pytest.approx(0.05)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    corrected = holm([0.5, math.nan, 0.01])
    assert corrected[0] == pytest.approx(0.5)
    assert math.isnan(corrected[1])
    assert corrected[2] == pytest.approx(0.02)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= min(1.0, p * len(p_values)) + 1e-12
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    assert [holm(p_values)[index] for index in order] == sorted(holm(p_values))


def test_difference_of_medians() -> None:
    fast, slow = ([[Time(base + step / 10) for step in range(20)] for _ in range(4)] for base in (1, 3))
    difference = bootstrap_difference(slow, fast)
    assert difference.value == pytest.approx(2.0)
    assert difference.low is not None
    assert difference.high is not None
    assert 1.2 < difference.low < 2.0 < difference.high < 2.8
    never = [[Time(math.inf, observed=False)] * 3] * 2
    assert bootstrap_difference(never, fast).value == math.inf
    assert math.isnan(bootstrap_difference(never, never).value)
    assert bootstrap_difference([[Time(1)]], [[Time(2)]]).low is None
    assert stats.bootstrap_difference(slow, fast) == difference, "the same numbers give the same result"
