"""Numbers as they are shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.measure.stats import Estimate
from testbed.report.numbers import duration, estimate, index, mebibytes, number, percent, plural, seconds, spread


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.012345, "0.0123"),
        (1.2345, "1.23"),
        (123.4, "123"),
        (-4.2, "-4.20"),
        (1234567, "1\u202f234\u202f567"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


def test_what_is_no_number() -> None:
    assert [form(math.nan) for form in (number, seconds, percent, mebibytes, index)] == ["\u2013"] * 5
    assert (number(math.inf), seconds(math.inf)) == ("never", "never")


def test_units() -> None:
    assert seconds(3.14159) == "3.14 s"
    assert percent(0.555) == "56 %"
    assert mebibytes(360 * 2**20) == "360 MiB"
    assert index(0.5) == "0.50"
    assert [duration(value) for value in (4.21, 59.7, 200, 3720)] == [
        "4.21 s",
        "1 min 00 s",
        "3 min 20 s",
        "1 h 02 min",
    ]
    assert (plural(1, "repeat"), plural(0, "repeat")) == ("1 repeat", "0 repeats")


def test_intervals() -> None:
    whole = Estimate(3.1, 3.02, 3.291, 5)
    assert estimate(whole, seconds) == "3.10 s [3.02, 3.29]"
    assert spread(whole, seconds) == "3.02 to 3.29 s"
    assert estimate(Estimate(0.5, 0.4, 0.6, 3), percent) == "50 % [40, 60]"
    assert estimate(Estimate(0.5, 0.4, 0.6, 3), index) == "0.50 [0.40, 0.60]"
    assert estimate(Estimate(5, 2, math.inf, 9), seconds) == "5.00 s [2.00, never]"
    assert spread(Estimate(5, 2, math.inf, 9), seconds) == "2.00 s to never"
    assert (estimate(Estimate(0.5), percent), spread(Estimate(0.5), percent)) == ("50 %", "one repeat: no conclusion")
    assert spread(Estimate(math.nan, n=0), percent) == "\u2013"


@settings(deadline=None)
@given(st.floats(1e-6, 1e9))
def test_three_digits_are_kept(value: float) -> None:
    shown = float(number(value).replace("\u202f", ""))
    assert shown == pytest.approx(value, rel=0.006)
