"""Quantities: every number can be written so that it is read back, and a unit is needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from testbed.model import quantities as q

COUNTS = st.integers(0, 2**53)


@given(COUNTS)
def test_durations_round_trip(microseconds: int) -> None:
    assert q.parse_duration_us(q.format_duration_us(microseconds)) == microseconds
    assert q.parse_offset_us(q.format_offset_us(microseconds)) == microseconds


@given(st.integers(8, 2**53))
def test_rates_round_trip(bits_per_second: int) -> None:
    assert q.parse_rate_bps(q.format_rate_bps(bits_per_second)) == bits_per_second


@given(COUNTS)
def test_sizes_round_trip(size: int) -> None:
    assert q.parse_size_bytes(q.format_size_bytes(size)) == size


@given(st.integers(0, 10**9).map(lambda parts: parts / 10**9))
def test_fractions_round_trip(fraction: float) -> None:
    assert q.parse_fraction(q.format_fraction(fraction)) == fraction


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (q.Duration, "20ms", 20_000),
        (q.Duration, "1.5 s", 1_500_000),
        (q.Duration, "7µs", 7),
        (q.Duration, "2min", 120_000_000),
        (q.Duration, "1h", 3_600_000_000),
        (q.Offset, "+30s", 30_000_000),
        (q.Rate, "8mbit", 8_000_000),
        (q.Rate, "1.5gbit", 1_500_000_000),
        (q.Size, "1MiB", 1_048_576),
        (q.Size, "1MB", 1_000_000),
        (q.Fraction, "0.1%", 0.001),
        (q.Fraction, "100%", 1.0),
    ],
)
def test_what_is_written_is_what_is_counted(kind: Any, text: str, number: float) -> None:
    adapter = TypeAdapter(kind)
    assert adapter.validate_python(text) == number
    assert adapter.validate_python(adapter.dump_python(number, mode="json")) == number


@pytest.mark.parametrize("kind", [q.Duration, q.Offset, q.Rate, q.Size, q.Fraction])
@pytest.mark.parametrize(
    "wrong", [20, 0.5, "20", "20 parsecs", "-1ms", "ms", "", True, [], "1e3ms", "٣ms", "9" * 400 + "h"]
)
def test_C13_a_unit_is_needed(kind: Any, wrong: object) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(wrong)
    message, _, remedy = str(caught.value.errors()[0]["ctx"]["error"]).partition("; ")
    assert message
    assert remedy, "every error says what would be right"
