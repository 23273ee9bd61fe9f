"""Polynomials over GF(2), as whole numbers whose bit i is the coefficient of x^i.

What a shift register needs: is its polynomial irreducible, is it primitive, and what is its order (the longest period
that the register can have). Lidl and Niederreiter, Introduction to Finite Fields, chapters 3 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from math import lcm

X = 2
"""The polynomial x."""
_TRIAL = 2**22
"""Prime factors below it are found by trial; what is left must be one prime."""
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_PROVEN = 3_317_044_064_679_887_385_961_981
"""Below it these witnesses decide for certain (Sorenson and Webster, Mathematics of Computation 86, 2017)."""

_TERM = re.compile(r"1|x(?:\^([0-9]{1,4}))?")


class UnknownFactors(ArithmeticError):
    """The prime factors of 2^n-1, on which the answer depends, are not known here. They are for every n up to 64."""


def parse(text: str) -> int:
    """``x^63 + x + 1`` to a polynomial; ValueError says what is wrong and, after a semicolon, what would be right."""
    if text.strip() == "0":
        return 0
    polynomial = 0
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ValueError(f"{term.strip()!r} is not a term of a polynomial; write terms such as x^63 + x + 1")
        degree = 0 if match[0] == "1" else int(match[1]) if match[1] else 1
        if polynomial >> degree & 1:
            raise ValueError(f"{term.strip()!r} stands twice; twice the same is nothing over GF(2), so leave both out")
        polynomial |= 1 << degree
    return polynomial


def text(polynomial: int) -> str:
    """The polynomial as ``x^63 + x + 1``."""
    degrees = [degree for degree in range(polynomial.bit_length() - 1, -1, -1) if polynomial >> degree & 1]
    return " + ".join({0: "1", 1: "x"}.get(degree, f"x^{degree}") for degree in degrees) or "0"


def degree(polynomial: int) -> int:
    """Of the highest term; -1 of the zero polynomial."""
    return polynomial.bit_length() - 1


def remainder(a: int, b: int) -> int:
    """``a`` modulo ``b``."""
    return divide(a, b)[1]


def divide(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder."""
    if not b:
        raise ZeroDivisionError("division by the zero polynomial")
    quotient, width = 0, b.bit_length()
    while (excess := a.bit_length() - width) >= 0:
        quotient |= 1 << excess
        a ^= b << excess
    return quotient, a


def greatest_divisor(a: int, b: int) -> int:
    """The greatest common divisor."""
    while b:
        a, b = b, remainder(a, b)
    return a


def square(a: int) -> int:
    """``a`` squared: over GF(2) that moves the coefficient of x^i to x^2i."""
    return int(f"{a:b}", 4)


def power_of_x(exponent: int, modulus: int) -> int:
    """x^exponent modulo ``modulus``."""
    result = 1
    for bit in f"{exponent:b}":
        result = square(result)
        if bit == "1":
            result <<= 1
        result = remainder(result, modulus)
    return result


def is_irreducible(polynomial: int) -> bool:
    """Rabin's test: x^(2^n) = x, and x^(2^(n/q)) - x has no common divisor with it for each prime q of n.

    M. O. Rabin, Probabilistic algorithms in finite fields, SIAM Journal on Computing 9, 1980.
    """
    n = degree(polynomial)
    if n < 1:
        return False
    if n == 1:
        return True
    tested = {n // q for q in _prime_factors(n)}
    power = X
    for count in range(1, n + 1):
        power = remainder(square(power), polynomial)
        if count in tested and greatest_divisor(polynomial, power ^ X) != 1:
            return False
    return power == X


def is_primitive(polynomial: int) -> bool:
    """Whether a register with this polynomial runs through all 2^n-1 states that are not zero.

    Raises ``UnknownFactors`` if the polynomial is irreducible and the factors of 2^n-1 are not known.
    """
    if not polynomial & 1 or not is_irreducible(polynomial):
        return False
    n = degree(polynomial)
    return all(power_of_x((2**n - 1) // q, polynomial) != 1 for q in mersenne_factors(n))


def order(polynomial: int) -> int:
    """The least e > 0 with x^e = 1 modulo ``polynomial``: the longest period of its sequences.

    Lidl and Niederreiter, theorem 3.11: with irreducible factors of degrees d and multiplicity at most m it divides
    lcm(2^d - 1) times the least power of two that is not below m. Raises ValueError if the term 1 is missing or alone,
    ``UnknownFactors`` as ``is_primitive`` does.
    """
    if not polynomial & 1 or polynomial == 1:
        raise ValueError(f"the powers of x never come back to 1 modulo {text(polynomial)}; it needs x^n and a term 1")
    degrees, multiplicity = _factor_degrees(polynomial)
    multiple = lcm(*(2**d - 1 for d in degrees)) << (multiplicity - 1).bit_length()
    return least(multiple, order_factors(polynomial), lambda exponent: power_of_x(exponent, polynomial) == 1)


def order_factors(polynomial: int) -> set[int]:
    """Primes among which are all that divide the order. Raises ``UnknownFactors`` as ``order`` does."""
    return {2}.union(*(mersenne_factors(d) for d in _factor_degrees(polynomial)[0]))


def least(multiple: int, primes: Iterable[int], holds: Callable[[int], bool]) -> int:
    """The least divisor of ``multiple`` for which ``holds``, where that is true just of the multiples of one number."""
    for prime in primes:
        while multiple % prime == 0 and holds(multiple // prime):
            multiple //= prime
    return multiple


def _factor_degrees(polynomial: int) -> tuple[set[int], int]:
    """Degrees of the irreducible factors, and the highest multiplicity of one."""
    degrees, highest, power, d = set(), 1, X, 0
    while degree(polynomial) > 0:
        d += 1
        power = remainder(square(power), polynomial)
        multiplicity = 0
        while degree(common := greatest_divisor(polynomial, power ^ X)) > 0:
            polynomial = divide(polynomial, common)[0]
            degrees.add(d)
            multiplicity += 1
        highest = max(highest, multiplicity)
    return degrees, highest


@cache
def mersenne_factors(n: int) -> frozenset[int]:
    """The primes that divide 2^n-1. Raises ``UnknownFactors`` if they cannot be told, which is never for n up to 64.

    2^n-1 is the product over the divisors d of n of the values of the cyclotomic polynomials at 2, and a prime that
    divides such a value is 1 modulo d, or the largest prime of d (Legendre).
    """
    return frozenset[int]().union(*(_cyclotomic_factors(d) for d in range(2, n + 1) if n % d == 0))


@cache
def _cyclotomic_value(d: int) -> int:
    value = (1 << d) - 1
    for divisor in range(1, d):
        if d % divisor == 0:
            value //= _cyclotomic_value(divisor)
    return value


@cache
def _cyclotomic_factors(d: int) -> frozenset[int]:
    value, found = _cyclotomic_value(d), set[int]()
    candidates = iter((max(_prime_factors(d)), *range(d + 1, _TRIAL, d)))
    while value > 1 and not (value < _PROVEN and _is_prime(value)):
        prime = next((candidate for candidate in candidates if value % candidate == 0), 0)
        if not prime:
            raise UnknownFactors(f"the prime factors of 2^{d}-1 are not known here")
        found.add(prime)
        while value % prime == 0:
            value //= prime
    return frozenset(found | {value} - {1})


def _prime_factors(n: int) -> set[int]:
    """Of a small number, by trial."""
    found, candidate = set(), 2
    while n > 1:
        if candidate * candidate > n:
            candidate = n
        while n % candidate == 0:
            found.add(candidate)
            n //= candidate
        candidate += 1
    return found


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test with witnesses that decide for certain below ``_PROVEN``."""
    if n in _WITNESSES:
        return True
    if n < 2 or any(n % witness == 0 for witness in _WITNESSES):
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(n, witness, odd, twos) for witness in _WITNESSES)


def _passes(n: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, n)
    if power in (1, n - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % n
        if power == n - 1:
            return True
    return False
