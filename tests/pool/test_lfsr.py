"""Shift registers against published sequences, a bit-by-bit register, and the theory of maximal sequences."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.pool.schedule import gf2
from testbed.pool.schedule.lfsr import PRIMITIVE, PUBLISHED, Lfsr, check, from_taps


def text(bits: np.ndarray) -> str:
    return "".join(map(str, bits))


def one_by_one(register: Lfsr, count: int) -> list[int]:
    """The register as its definition says: put out b_1, shift, fill b_n with the sum of the taps."""
    stages = [register.state >> stage & 1 for stage in range(register.width)]
    out = []
    for _ in range(count):
        out.append(stages[0])
        stages = [*stages[1:], sum(stages[tap - 1] for tap in register.taps) % 2]
    return out


@st.composite
def registers(draw: st.DrawFn, most: int = 130) -> Lfsr:
    width = draw(st.integers(1, most))
    polynomial = (1 << width) | 1 | draw(st.integers(0, 2 ** (width - 1))) << 1 & ((1 << width) - 1)
    return Lfsr(polynomial, draw(st.integers(1, 2**width - 1)))


@given(registers(), st.integers(0, 20_000))
def test_bits_are_those_of_the_register(register: Lfsr, count: int) -> None:
    bits = register.bits(count)
    assert len(bits) == count
    assert bits[:700].tolist() == one_by_one(register, min(count, 700))
    taps = [tap - 1 for tap in register.taps]
    n = register.width
    if count > n:  # the recurrence holds to the end
        total = np.bitwise_xor.reduce([bits[tap : count - n + tap] for tap in taps])
        assert (bits[n:] == total).all()


@pytest.mark.parametrize(
    "polynomial", [PRIMITIVE, PUBLISHED, gf2.parse("x^63 + x^62 + x + 1"), gf2.parse("x^2 + x + 1")]
)
def test_the_recurrence_holds_in_long_sequences(polynomial: int) -> None:
    """Two million bits and some: past the place where the stride of the vectorised recurrence stops growing."""
    register = Lfsr.seeded(polynomial, 5)
    bits = register.bits(2_345_678)
    n = register.width
    total = np.bitwise_xor.reduce([bits[tap - 1 : len(bits) - n + tap - 1] for tap in register.taps])
    assert (bits[n:] == total).all()


@given(registers(90), st.integers(0, 3000), st.integers(0, 100))
def test_jump(register: Lfsr, steps: int, count: int) -> None:
    later = register.after(steps)
    assert later.bits(count).tolist() == register.bits(steps + count)[steps:].tolist()


@settings(max_examples=25)
@given(st.integers(0, 2**80), st.integers(0, 2**80))
def test_jumps_add_up(a: int, b: int) -> None:
    register = Lfsr.seeded(PRIMITIVE, 1)
    assert register.after(a).after(b) == register.after(a + b)


def test_packed_words_hold_the_bits_lowest_first() -> None:
    register = Lfsr.seeded(PRIMITIVE, 9)
    words = register.packed(130)
    assert len(words) == 3
    assert [int(words[place // 64]) >> place % 64 & 1 for place in range(130)] == register.bits(130).tolist()


# Reference vectors. Standards write the polynomial in the delay operator: their x^7 + x^4 + 1 means
# s(k) = s(k-4) + s(k-7), which as s(k+7) = s(k+3) + s(k) has the polynomial x^7 + x^3 + 1 here.


def test_wireless_lan_scrambler() -> None:
    """IEEE 802.11-2016, 17.3.5.5: the 127 bits that follow the all-ones state of x^7 + x^4 + 1."""
    register = Lfsr.from_text(gf2.parse("x^7 + x^3 + 1"), "1111111")
    assert text(register.bits(7 + 127)[7:]) == (
        "00001110111100101100100100000010001001100010111010110110000011001101010011100111"
        "10110100001010101111101001010001101110001111111"
    )
    assert register.period() == 127


@pytest.mark.parametrize(
    ("satellite", "delay", "first_chips"),
    [(1, 5, "1440"), (2, 6, "1620"), (3, 7, "1710"), (4, 8, "1744"), (5, 17, "1133"), (6, 18, "1455")],
)
def test_navigation_codes(satellite: int, delay: int, first_chips: str) -> None:
    """IS-GPS-200, table 3-Ia: first ten chips, in octal, of G1 (1 + x^3 + x^10) and the delayed G2."""
    g1 = Lfsr.from_text(gf2.parse("x^10 + x^7 + 1"), "1" * 10).bits(10)
    g2 = Lfsr.from_text(gf2.parse("x^10 + x^8 + x^7 + x^4 + x^2 + x + 1"), "1" * 10)
    chips = g1 ^ g2.after(1023 - delay).bits(10)
    assert f"{int(text(chips), 2):04o}" == first_chips


def test_sixteen_stages_from_ace1() -> None:
    """The register x^16 + x^14 + x^13 + x^11 + 1 that starts at 0xACE1 comes back after 65535 steps, and its first."""
    polynomial = gf2.parse("x^16 + x^5 + x^3 + x^2 + 1")  # s(k+16) = s(k) + s(k+2) + s(k+3) + s(k+5)
    register = Lfsr(polynomial, 0xACE1)
    assert register.period() == 65535
    assert register.after(1).state == 0x5670  # as every textbook's first step
    assert register.after(65535) == register


@pytest.mark.parametrize("width", range(2, 15))
def test_golombs_postulates(width: int) -> None:
    """Golomb 1967: balance, runs and two-valued autocorrelation of maximal sequences."""
    polynomial = next(p for p in range((1 << width) + 1, 2 << width, 2) if gf2.is_primitive(p))
    period = 2**width - 1
    bits = Lfsr(polynomial, 1).bits(period)
    assert bits.sum() == 2 ** (width - 1)
    start = int(np.flatnonzero(np.diff(bits))[0]) + 1
    runs = [len(list(group)) for _, group in groupby(np.roll(bits, -start).tolist())]
    assert len(runs) == 2 ** (width - 1)
    assert sum(length == 1 for length in runs) == (2 ** (width - 2) if width > 2 else 1)
    signs = 1 - 2 * bits.astype(int)
    assert all(int(signs @ np.roll(signs, shift)) == -1 for shift in range(1, min(period, 40)))


def test_default_is_primitive_and_published_is_not() -> None:
    assert Lfsr.seeded(PRIMITIVE, 1).is_primitive() is True
    assert Lfsr.seeded(PRIMITIVE, 1).period() == 2**63 - 1
    assert Lfsr.seeded(PRIMITIVE, 1).taps == (1, 2)
    published = Lfsr.seeded(PUBLISHED, 1)
    assert published.is_primitive() is False
    assert published.taps == (1, 2, 62)


PUBLISHED_READINGS = {
    "x^63 + x^61 + x + 1": 76860260828049135,
    "x^62 + x^61 + x^60 + 1": 4958721628244175,
    "x^63 + x^62 + x + 1": 124,
    "x^62 + x^61 + x + 1": 122,
}
"""All readings of the published feedback in docs/pool.md, and the longest period of each."""


@pytest.mark.parametrize(("reading", "longest"), PUBLISHED_READINGS.items())
def test_every_reading_of_the_published_feedback_falls_short(reading: str, longest: int) -> None:
    polynomial = gf2.parse(reading)
    assert polynomial.bit_count() % 2 == 0
    assert gf2.remainder(polynomial, 0b11) == 0, "an even number of terms: x + 1 divides it"
    assert not gf2.is_primitive(polynomial)
    assert gf2.order(polynomial) == longest
    register = Lfsr.seeded(polynomial, 3)
    period = register.period()
    assert period is not None
    assert longest % period == 0
    assert register.after(period) == register
    if longest < 1000:
        bits = register.bits(5 * longest)
        assert (bits[longest:] == bits[:-longest]).all()


def test_published_feedback_stays_at_all_ones() -> None:
    ones = Lfsr(PUBLISHED, 2**63 - 1)
    assert ones.period() == 1
    assert ones.bits(200).all()


def test_primitive_or_not_cannot_always_be_told() -> None:
    mersenne_67 = next(
        p for p in range((1 << 67) + 1, (1 << 67) + 4000, 2) if gf2.is_irreducible(p)
    )  # the factors of 2^67-1 are not known here
    assert Lfsr(mersenne_67, 1).is_primitive() is None
    assert Lfsr(mersenne_67, 1).period() is None
    assert Lfsr((1 << 67) + 1, 1).is_primitive() is False, "but a reducible one is not primitive at any width"


@pytest.mark.parametrize("width", [1, 7, 63, 64, 65, 127, 1279])
def test_seeded_states_differ_and_are_not_zero(width: int) -> None:
    polynomial = (1 << width) | 1
    states = [Lfsr.seeded(polynomial, seed).state for seed in range(20)]
    assert all(0 < state < 2**width for state in states)
    assert len(set(states)) == 1 if width == 1 else len(set(states)) > 10
    assert Lfsr.seeded(polynomial, 7) == Lfsr.seeded(polynomial, 7)


def test_all_zero_is_refused_and_says_why() -> None:
    with pytest.raises(ValueError, match=r"all zero, and the sum of zeros is zero.*; start with at least one 1"):
        Lfsr(PRIMITIVE, 0)
    with pytest.raises(ValueError, match="all zero"):
        Lfsr.from_text(PRIMITIVE, "0" * 63)


@pytest.mark.parametrize(
    ("polynomial", "message"),
    [
        ("0", "the zero polynomial feeds nothing back"),
        ("1", "no stages"),
        ("x^3 + x", "no term 1: stage 1 is not tapped"),
        ("x^9999 + 1", "9999 stages"),
    ],
)
def test_polynomials_that_no_register_has(polynomial: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(gf2.parse(polynomial))


def test_states_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="the state has 4 bits and the register 3"):
        Lfsr(0b1011, 8)
    with pytest.raises(ValueError, match="'0120' is no state of 4 stages"):
        Lfsr.from_text(0b10011, "0120")
    with pytest.raises(ValueError, match="write 63 characters"):
        Lfsr.from_text(PRIMITIVE, "1")


def test_taps() -> None:
    assert from_taps(63, [1, 2]) == PRIMITIVE
    assert from_taps(63, [1, 2, 62]) == PUBLISHED
    for taps, message in (
        ([0], "no stage 0"),
        ([1, 8], "no stage 8"),
        ([1, 3, 3], "stage 3 is tapped twice"),
        ([2], "no term 1"),
    ):
        with pytest.raises(ValueError, match=message):
            from_taps(7, taps)
