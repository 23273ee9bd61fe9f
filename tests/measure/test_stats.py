"""Statistics against hand computations, scipy, and properties that must always hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.measure.stats import (
    Estimate,
    Time,
    bootstrap_median,
    bootstrap_ratio,
    ecdf,
    growth,
    jain,
    jain_interval,
    mean_interval,
    median,
    median_time,
    ranked_share_intervals,
    rates,
    share_intervals,
    shares,
    unwrap,
)

seconds = st.floats(0.001, 1e6)
values = st.lists(seconds, min_size=1, max_size=40)
times = st.lists(
    st.builds(Time, st.one_of(st.integers(1, 9).map(float), seconds), st.booleans()), min_size=1, max_size=30
)


def observed(data: Sequence[float]) -> list[Time]:
    return [Time(value) for value in data]


@given(values)
def test_median_of_complete_times_is_the_plain_one(data: list[float]) -> None:
    assert median_time(observed(data)) == pytest.approx(float(np.median(data)))
    assert median(data) == pytest.approx(float(np.median(data)))


# From 1e-300, where halving is exact still, to the largest there is.
@given(st.lists(st.one_of(st.floats(1e-300, 1.7e308), st.sampled_from([1.7e308, 1.6e308])), min_size=2, max_size=8))
def test_medians_are_exact_up_to_the_largest_numbers(data: list[float]) -> None:
    ordered = sorted(map(Fraction, data))
    expected = float((ordered[(len(data) - 1) // 2] + ordered[len(data) // 2]) / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert median(data) == expected
        assert median_time(observed(data)) == expected


@pytest.mark.parametrize(
    "data, middle",
    [
        ([1.7e308, 1.7e308], 1.7e308),
        ([math.inf, 1.0], math.inf),
        ([math.inf] * 3, math.inf),
        ([-math.inf, -1.0], -math.inf),
        ([3.0, -math.inf, math.inf], 3.0),
    ],
)
def test_medians_at_the_ends(data: list[float], middle: float) -> None:
    assert median(data) == middle


def test_median_with_nan() -> None:
    assert math.isnan(median([1.0, math.nan, 2.0]))
    assert math.isnan(median([-math.inf, math.inf]))


def test_medians_of_nothing() -> None:
    assert math.isnan(median([]))
    assert math.isnan(median_time([]))


def test_median_with_what_never_finished() -> None:
    never = Time(math.inf, observed=False)
    assert median_time([Time(1), Time(2), never]) == 2
    assert median_time([Time(1), never, never]) == math.inf
    assert median_time([Time(1), never]) == 1  # exactly half, and nothing later to lie midway to
    # Cut at 1.5 s: it is known to have taken longer, so the rest of the weight moves to later times.
    assert median_time([Time(1), Time(1.5, observed=False), Time(2), Time(3)]) == 2


def test_ecdf_by_hand() -> None:
    # The example of the Kaplan-Meier estimator with one censored value: 1/4 finished at 1; then 3/8 of the rest each.
    t, share = ecdf([Time(1), Time(2, observed=False), Time(3), Time(4)])
    assert list(t) == [1, 3, 4]
    assert share == pytest.approx([0.25, 0.625, 1.0])
    assert [part.tolist() for part in ecdf([])] == [[], []]
    assert [part.tolist() for part in ecdf([Time(5, observed=False)])] == [[], []]


@given(times)
def test_ecdf_agrees_with_scipy(data: list[Time]) -> None:
    from scipy.stats import CensoredData
    from scipy.stats import ecdf as reference

    whole = [time.seconds for time in data if time.observed]
    cut = [time.seconds for time in data if not time.observed]
    t, share = ecdf(data)
    expected = reference(CensoredData(uncensored=whole, right=cut)).cdf
    assert share == pytest.approx(expected.evaluate(t), abs=1e-9)
    assert list(t) == sorted(set(whole))


@given(times)
def test_ecdf_rises_and_the_median_is_where_it_passes_a_half(data: list[Time]) -> None:
    t, share = ecdf(data)
    assert np.all(np.diff(t) > 0)
    assert np.all(np.diff(share) > 0)
    middle = median_time(data)
    if math.isinf(middle):
        assert not len(share) or share[-1] < 0.5
    else:
        assert share[t <= middle][-1] >= 0.5 - 1e-9
        assert not np.any(share[t < middle] > 0.5 + 1e-9)


def test_bootstrap_interval_agrees_with_scipy() -> None:
    from scipy.stats import bootstrap

    data = np.random.default_rng(1).gamma(2, 2, size=101)
    ours = bootstrap_median([observed(data.tolist())], seed=1, resamples=9999)
    theirs = bootstrap((data,), np.median, method="percentile", n_resamples=9999, rng=np.random.default_rng(2))
    assert ours.value == np.median(data)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.15)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.15)
    assert ours.n == 101


def test_bootstrap_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(200):
        estimate = bootstrap_median([observed(rng.exponential(size=60).tolist())], seed=trial, resamples=400)
        assert estimate.low is not None
        assert estimate.high is not None
        hits += estimate.low <= math.log(2) <= estimate.high
    assert 0.88 <= hits / 200 <= 0.995


@given(st.lists(times, min_size=1, max_size=4), st.integers(0, 3))
def test_bootstrap_is_repeatable_and_ordered(repeats: list[list[Time]], seed: int) -> None:
    first = bootstrap_median(repeats, seed=seed, resamples=50)
    assert first == bootstrap_median(repeats, seed=seed, resamples=50)
    if first.low is not None and first.high is not None:
        assert first.low <= first.high
        every = [time.seconds for repeat in repeats for time in repeat if time.observed]
        assert min(every, default=math.inf) <= first.low


def test_repeats_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(5)
    draws = [rng.normal(10, 1, 100).tolist() for _ in range(3)]
    alike = bootstrap_median([observed(draw) for draw in draws])
    shifted = bootstrap_median([observed([value + 5 * index for value in draw]) for index, draw in enumerate(draws)])
    assert alike.low is not None
    assert alike.high is not None
    assert shifted.low is not None
    assert shifted.high is not None
    assert shifted.high - shifted.low > 4 * (alike.high - alike.low)


def test_bootstrap_of_too_little() -> None:
    assert bootstrap_median([[Time(3)]]) == Estimate(3.0, n=1)
    assert math.isnan(bootstrap_median([]).value)
    assert math.isnan(bootstrap_ratio([], []).value)


def test_an_interval_may_reach_to_never() -> None:
    never = Time(math.inf, observed=False)
    estimate = bootstrap_median([observed([1, 2, 3, 4, 5]) + [never] * 4])
    assert estimate.value == 5
    assert estimate.high == math.inf


def test_ratio_of_medians() -> None:
    rng = np.random.default_rng(7)
    slow, quick = rng.normal(20, 1, 300).tolist(), rng.normal(10, 1, 300).tolist()
    estimate = bootstrap_ratio([observed(quick)], [observed(slow)])
    assert estimate.value == pytest.approx(0.5, abs=0.02)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0.45 < estimate.low < estimate.value < estimate.high < 0.55


def test_mean_interval_by_hand_and_by_scipy() -> None:
    from scipy import stats

    data = [0.50, 0.56, 0.61]
    estimate = mean_interval(data)
    low, high = stats.t.interval(0.95, 2, loc=np.mean(data), scale=stats.sem(data))
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))
    # t(0.975, 2) = 4.3027; s = 0.055076; half width = 4.3027 * 0.055076 / sqrt(3)
    assert estimate.high == pytest.approx(0.556667 + 0.136817, abs=1e-5)
    assert mean_interval(data, bounds=(0.5, 0.6)) == Estimate(estimate.value, 0.5, 0.6, 3)
    assert mean_interval([1.0]) == Estimate(1.0, None, None, 1)
    assert mean_interval([math.nan, 1.0]) == Estimate(1.0, None, None, 1)
    assert math.isnan(mean_interval([]).value)


def test_shares_of_the_published_case() -> None:
    repeats = [{"a": 56.0, "b": 44.0}, {"a": 40.0, "b": 60.0}]
    assert shares(repeats[0]) == {"a": 0.56, "b": 0.44}
    assert share_intervals(repeats)["a"].value == pytest.approx(0.48)
    assert [estimate.value for estimate in ranked_share_intervals(repeats)] == pytest.approx([0.58, 0.42])
    assert share_intervals([{"a": 1.0}, {"b": 1.0}])["b"].value == pytest.approx(0.5)
    assert ranked_share_intervals([]) == []
    assert all(math.isnan(share) for share in shares({"a": 0.0, "b": 0.0}).values())


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1e12), min_size=1, max_size=8))
def test_shares_add_to_one(amounts: dict[str, float]) -> None:
    parts = shares(amounts)
    assert parts.keys() == amounts.keys()
    if sum(amounts.values()) > 0:
        assert sum(parts.values()) == pytest.approx(1)
        assert all(0 <= part <= 1 for part in parts.values())


def test_jain_by_hand() -> None:
    assert jain([1, 1, 1]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([50, 32, 18]) == pytest.approx(100**2 / (3 * (2500 + 1024 + 324)))
    assert math.isnan(jain([0, 0]))
    assert math.isnan(jain([]))
    assert jain_interval([{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 0.0}]).value == pytest.approx(0.75)


AMOUNTS = st.just(0.0) | st.floats(1e-300, 1e9)  # none so small that a factor makes it nothing


@given(st.lists(AMOUNTS, min_size=1, max_size=20).filter(lambda data: max(data) > 0), st.floats(0.01, 100))
def test_jain_lies_between_one_nth_and_one_whatever_the_unit(data: list[float], factor: float) -> None:
    index = jain(data)
    assert 1 / len(data) - 1e-9 <= index <= 1 + 1e-9
    assert jain([value * factor for value in data]) == pytest.approx(index)
    assert jain(list(reversed(data))) == pytest.approx(index)


def test_a_counter_that_starts_anew_goes_on() -> None:
    assert list(unwrap([100, 150, 20, 30])) == [0, 50, 70, 80]
    assert list(unwrap([])) == []


def test_growth_between_samples() -> None:
    t, counter = [0, 1, 2, 3], [0, 100, 300, 300]
    assert growth(t, counter, 0.5, 1.5) == 150
    assert growth(t, counter, -10, 10) == 300
    assert growth([], [], 0, 1) == 0


def test_rates_by_hand() -> None:
    middle, rate = rates([0, 1, 2, 3, 4], [0, 10, 30, 30, 50], 2)
    assert (middle.tolist(), rate.tolist()) == ([1, 3], [15, 10])
    middle, rate = rates([0, 5], [0, 10], 2)
    assert middle.tolist() == [1, 3, 4.5]
    assert rate.tolist() == pytest.approx([2, 2, 2])
    assert rates([1], [1], 1)[0].tolist() == []


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30), st.floats(0.1, 10))
def test_rates_hold_all_of_the_growth(steps: list[float], width: float) -> None:
    t = list(range(len(steps)))
    counter = np.cumsum(steps).tolist()
    middle, rate = rates(t, counter, width)
    edges = [*np.arange(t[0], t[-1] - width * 1e-6, width), t[-1]]
    assert float((rate * np.diff(edges)).sum()) == pytest.approx(counter[-1] - counter[0], rel=1e-6, abs=1e-3)
    assert len(middle) == len(edges) - 1
