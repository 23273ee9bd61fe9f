"""Streams of bits: what they are read from, when they stand, and how they combine."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.pool.schedule.lfsr import PRIMITIVE, Lfsr
from testbed.pool.schedule.sequences import (
    FOREVER,
    Combined,
    Given,
    Live,
    PseudoRandom,
    check_bits,
    parse_bits,
    read_bits,
)

BITS = st.lists(st.integers(0, 1), min_size=1, max_size=60)


class SmallBlocks(PseudoRandom):
    BLOCK = 64


def test_bits_stand_after_a_period_each_unless_told() -> None:
    assert Given([1, 0, 1], 10).ones(0, 100).tolist() == [10, 30]
    assert Given([1, 0, 1], 10, 0).ones(-1, 100).tolist() == [0, 20]
    assert Given([1, 0, 1], 10, 3).ones(3, 23).tolist() == [23], "after is excluded, until included"


@given(BITS, st.integers(1, 50), st.integers(0, 100), st.integers(-5, 500), st.integers(-5, 500))
def test_given_bits(bits: list[int], period: int, first: int, after: int, until: int) -> None:
    expected = [first + k * period for k, bit in enumerate(bits) if bit and after < first + k * period <= until]
    assert Given(bits, period, first).ones(after, until).tolist() == expected


@given(st.integers(1, 7), st.integers(0, 20), st.lists(st.integers(-10, 5000), min_size=2, max_size=4))
def test_pseudo_random_bits_from_any_place(period: int, first: int, times: list[int]) -> None:
    register = Lfsr.seeded(PRIMITIVE, 3)
    stream = SmallBlocks(register, period, first)
    bits = register.bits(5000)
    whole = Given(bits.tolist(), period, first)
    for after, until in pairwise(times):  # forwards and backwards
        assert stream.ones(after, until).tolist() == whole.ones(after, until).tolist()


def test_pseudo_random_bits_far_away() -> None:
    stream = PseudoRandom(Lfsr.seeded(PRIMITIVE, 3), 10)
    far = 10 * PseudoRandom.BLOCK * 10**6
    window = stream.ones(far, far + 1000).tolist()
    register = Lfsr.seeded(PRIMITIVE, 3).after(far // 10)
    assert window == [far + 10 + 10 * k for k, bit in enumerate(register.bits(100)) if bit]


def test_or_and_xor_of_different_periods() -> None:
    streams = {"fast": Given([1, 1, 0, 1], 60), "slow": Given([1, 0], 120)}
    assert Combined(streams, "or").ones(0, 1000).tolist() == [60, 120, 240]
    assert Combined(streams, "xor").ones(0, 1000).tolist() == [60, 240]
    assert Combined(streams).causes(120) == ("fast", "slow")
    assert Combined(streams).causes(60) == ("fast",)
    assert Combined(streams, "or").text(240) == "1101"
    assert Combined(streams, "xor").text(240) == "1001"


@given(BITS, BITS, BITS, st.sampled_from(["or", "xor"]))
def test_combination_of_three(a: list[int], b: list[int], c: list[int], how: str) -> None:
    parts = {"a": Given(a, 2), "b": Given(b, 3), "c": Given(c, 4, 0)}
    sets = [set(part.ones(-1, 1000).tolist()) for part in parts.values()]
    expected = sets[0] | sets[1] | sets[2] if how == "or" else sets[0] ^ sets[1] ^ sets[2]
    assert Combined(parts, how).ones(-1, 1000).tolist() == sorted(expected)  # type: ignore[arg-type]


def test_nothing_combined() -> None:
    assert Combined({}).ones(-1, 100).tolist() == []
    assert (Combined({}).period, Combined({}).end, Combined({}).known(5)) == (FOREVER, -1, FOREVER)


def test_text_of_bits_that_do_not_line_up() -> None:
    with pytest.raises(ValueError, match="cannot be written in one row"):
        Combined({"a": Given([0, 0], 60), "b": Given([1], 90)}).text(120)


def test_live_bits_are_one_where_something_was_detected() -> None:
    live = Live(10)
    assert live.known(9) == 9
    assert live.known(25) == 29
    live.detected(1)
    live.detected(10)
    live.detected(10)
    live.detected(31)
    assert live.ones(0, 100).tolist() == [10, 40]
    assert Live(10, 5).known(4) == 4
    assert Live(10, 5).known(5) == 14
    combined = Combined({"live": live, "given": Given([1], 35)})
    assert combined.known(25) == 29


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 40), st.integers(0, 40))
def test_live_bits(detections: list[int], period: int, first: int) -> None:
    live = Live(period, first)
    for at in detections:
        live.detected(at)
    for bit in range(20):
        at = first + bit * period
        start = at - period if bit else -1
        assert bool(len(live.ones(at - 1, at))) == any(start < d <= at for d in detections)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ([0, 1, 2], "item 3 is 2, which is no bit; write 0 or 1"),
        ([True], "item 1 is True"),
        (["1"], "item 1 is '1'"),
        ([], "there are no bits"),
        ("0102", "character 4 is '2'"),
        ("01O1", "character 3 is 'O'"),
        ("", "there are no bits"),
        ("  ", "there are no bits"),
    ],
)
def test_what_is_no_bit_is_named_with_its_place(bits: list[int] | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_bits(bits)  # type: ignore[arg-type]


def test_text_may_have_blanks() -> None:
    assert parse_bits("01 10\n1\n").tolist() == [0, 1, 1, 0, 1]


def test_file(tmp_path: Path) -> None:
    file = tmp_path / "bits.txt"
    file.write_text("# the first ten\n00000 11010\n01 # more\n")
    assert read_bits(file).tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0101\n01x1\n", r"bits.txt:2:3: 'x' is no bit\n  write 0 or 1"),
        (b"# nothing\n", "there are no bits in it"),
        (b"01\xff", "cannot be read: it is not text"),
    ],
)
def test_file_with_a_mistake(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bits.txt"
    file.write_bytes(content)
    with pytest.raises(TestbedError, match=message):
        read_bits(file)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"none.txt: cannot be read: No such file"):
        read_bits(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("period", "first", "message"), [(0, None, "period of a bit is nothing"), (5, -1, "before the start")]
)
def test_times_that_cannot_be(period: int, first: int | None, message: str) -> None:
    for make in (lambda: Given([1], period, first), lambda: Live(period, first)):
        with pytest.raises(ValueError, match=message):
            make()
