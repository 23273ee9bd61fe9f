"""Polynomials over GF(2), against counting and against known results."""

from __future__ import annotations

from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.pool.schedule import gf2

POLYNOMIALS = st.integers(1, 2**70)


def times(a: int, b: int) -> int:
    """``a`` times ``b``, term by term."""
    return reduce(xor, (a << shift for shift in range(b.bit_length()) if b >> shift & 1))


def period_by_counting(polynomial: int) -> int:
    power, steps = gf2.remainder(2, polynomial), 1
    while power != 1:
        power = gf2.remainder(power << 1, polynomial)
        steps += 1
    return steps


@given(POLYNOMIALS, POLYNOMIALS)
def test_quotient_and_remainder_make_the_dividend(a: int, b: int) -> None:
    quotient, remainder = gf2.divide(a, b)
    assert times(quotient, b) ^ remainder == a
    assert gf2.degree(remainder) < gf2.degree(b)


@given(POLYNOMIALS)
def test_square_is_the_product_with_itself(a: int) -> None:
    assert gf2.square(a) == times(a, a)


@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_greatest_divisor_divides_and_has_common_factors(a: int, b: int, c: int) -> None:
    found = gf2.greatest_divisor(times(a, c), times(b, c))
    assert gf2.remainder(found, c) == 0
    assert gf2.remainder(times(a, c), found) == gf2.remainder(times(b, c), found) == 0


@given(st.integers(0, 500), st.integers(2, 2**20))
def test_power_of_x(exponent: int, modulus: int) -> None:
    assert gf2.power_of_x(exponent, modulus) == gf2.remainder(1 << exponent, modulus)


@pytest.mark.parametrize("width", range(1, 10))
def test_irreducible_and_primitive_are_right_for_every_polynomial(width: int) -> None:
    """By division through everything, and by counting the period; their numbers are the known ones."""
    irreducible = primitive = 0
    for polynomial in range(1 << width, 2 << width):
        divisors = range(2, 1 << (width // 2 + 1))
        by_division = all(gf2.remainder(polynomial, divisor) for divisor in divisors if divisor != polynomial)
        assert gf2.is_irreducible(polynomial) == by_division, gf2.text(polynomial)
        full = bool(polynomial & 1) and period_by_counting(polynomial) == 2**width - 1
        assert gf2.is_primitive(polynomial) == full, gf2.text(polynomial)
        irreducible, primitive = irreducible + by_division, primitive + full
    assert irreducible == [2, 1, 2, 3, 6, 9, 18, 30, 56][width - 1]  # OEIS A001037
    assert primitive == [1, 1, 2, 2, 6, 6, 18, 16, 48][width - 1]  # OEIS A011260


@pytest.mark.parametrize("width", range(1, 9))
def test_order_is_the_period_for_every_polynomial(width: int) -> None:
    for polynomial in range((1 << width) + 1, 2 << width, 2):
        assert gf2.order(polynomial) == period_by_counting(polynomial), gf2.text(polynomial)


@pytest.mark.parametrize("width", range(1, 65))
def test_prime_factors_of_mersenne_numbers(width: int) -> None:
    factors = gf2.mersenne_factors(width)
    rest = 2**width - 1
    for prime in factors:
        assert pow(3, prime - 1, prime) == 1 or prime == 3
        assert all(prime % small for small in range(2, min(1000, prime)))
        while rest % prime == 0:
            rest //= prime
    assert rest == 1


def test_some_known_factors() -> None:
    assert gf2.mersenne_factors(59) == {179951, 3203431780337}
    assert gf2.mersenne_factors(63) == {7, 73, 127, 337, 92737, 649657}
    assert gf2.mersenne_factors(64) == {3, 5, 17, 257, 641, 65537, 6700417}
    assert gf2.mersenne_factors(61) == {2**61 - 1}


@pytest.mark.parametrize(
    "text",
    # Seroussi, Table of Low-Weight Binary Irreducible Polynomials, HPL-98-135, and Zivkovic's primitive trinomials.
    ["x^7 + x + 1", "x^15 + x + 1", "x^31 + x^3 + 1", "x^60 + x + 1", "x^63 + x + 1", "x^64 + x^4 + x^3 + x + 1"],
)
def test_known_primitive_polynomials(text: str) -> None:
    assert gf2.is_primitive(gf2.parse(text))


def test_irreducible_but_not_primitive() -> None:
    aes = gf2.parse("x^8 + x^4 + x^3 + x + 1")  # FIPS 197: irreducible; x has order 51
    assert gf2.is_irreducible(aes)
    assert not gf2.is_primitive(aes)
    assert gf2.order(aes) == 51


def test_unknown_factors_are_said() -> None:
    with pytest.raises(gf2.UnknownFactors, match=r"2\^67-1"):  # 193707721 * 761838257287, which took Cole three years
        gf2.mersenne_factors(67)


@given(POLYNOMIALS)
def test_text_is_read_back(polynomial: int) -> None:
    assert gf2.parse(gf2.text(polynomial)) == polynomial


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x^63 + y + 1", "'y' is not a term"),
        ("x^63 + + 1", "'' is not a term"),
        ("x^3 + x + x", "'x' stands twice"),
        ("x**3 + 1", "is not a term"),
        ("2x + 1", "'2x' is not a term"),
    ],
)
def test_text_that_is_no_polynomial(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gf2.parse(text)


def test_division_by_zero_and_order_without_constant_term() -> None:
    with pytest.raises(ZeroDivisionError):
        gf2.divide(5, 0)
    for polynomial in (0b110, 1):
        with pytest.raises(ValueError, match="term 1"):
            gf2.order(polynomial)
