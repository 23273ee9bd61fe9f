"""Linear feedback shift registers of any width, and their sequences at memory speed.

A register of n stages holds the bits b_1 ... b_n. It puts out b_1, moves every bit one stage down, and fills b_n with
the sum (exclusive or) of the stages that are tapped. So its output is s(k+n) = sum of s(k+t-1) over the taps t, and its
polynomial is x^n + sum of x^(t-1). (Fibonacci form; Golomb, Shift Register Sequences, 1967.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.pool.schedule import gf2

PRIMITIVE = gf2.parse("x^63 + x + 1")
"""Taps 1 and 2 of 63: primitive, so the period is 2^63-1."""
PUBLISHED = gf2.parse("x^63 + x^61 + x + 1")
"""Taps 1, 2 and 62 of 63: the paper's b_n = b_1 + b_2 + b_(n-1) for n = 63. See docs/pool.md on other readings."""

MOST_STAGES = 4096
_WORD = 64
_WORKING_SET = 2**15
"""Words that the vectorised recurrence reaches back at most: what stays in a processor's cache."""

Words = NDArray[np.uint64]
Bits = NDArray[np.uint8]


def from_taps(width: int, taps: Iterable[int]) -> int:
    """The polynomial of a register of ``width`` stages with these taps, counted from 1. ValueError if there is none."""
    polynomial = 1 << width
    for tap in taps:
        if not 1 <= tap <= width:
            raise ValueError(f"there is no stage {tap} to tap; the stages are 1 to {width}")
        if polynomial >> (tap - 1) & 1:
            raise ValueError(f"stage {tap} is tapped twice; twice the same bit adds nothing, so leave both out")
        polynomial |= 1 << (tap - 1)
    check(polynomial)
    return polynomial


def check(polynomial: int) -> int:
    """``polynomial`` if a register can have it; ValueError says why not and, after a semicolon, what would be right."""
    if polynomial == 0:
        raise ValueError("the zero polynomial feeds nothing back; give taps, such as x^63 + x + 1")
    width = gf2.degree(polynomial)
    if width < 1:
        raise ValueError("the polynomial 1 has no stages; give taps, such as x^63 + x + 1")
    if width > MOST_STAGES:
        raise ValueError(f"{width} stages are more than can be computed with; use at most {MOST_STAGES}")
    if not polynomial & 1:
        raise ValueError(
            f"{gf2.text(polynomial)} has no term 1: stage 1 is not tapped, and the register is shorter than it looks; "
            "add + 1, or take the common power of x out"
        )
    return polynomial


@dataclass(frozen=True, slots=True)
class Lfsr:
    """A register in one state. It does not change: ``after`` gives the register that it becomes."""

    polynomial: int
    state: int
    """Bit i is the stage b_(i+1), so the lowest bit comes out first."""

    def __post_init__(self) -> None:
        check(self.polynomial)
        if self.state == 0:
            raise ValueError(
                "the register is all zero, and the sum of zeros is zero: it would put out zeros for ever; "
                "start with at least one 1"
            )
        if self.state < 0 or self.state.bit_length() > self.width:
            raise ValueError(
                f"the state has {self.state.bit_length()} bits and the register {self.width}; give one bit a stage"
            )

    @classmethod
    def seeded(cls, polynomial: int, seed: int) -> Lfsr:
        """A state that looks like chance (SHAKE-256 of the seed): a sparse one shows in the first hundreds of bits."""
        width = gf2.degree(check(polynomial))
        for attempt in range(1000):
            digest = hashlib.shake_256(f"lfsr {seed} {attempt}".encode()).digest(width // 8 + 1)
            state = int.from_bytes(digest, "little") & ((1 << width) - 1)
            if state:
                return cls(polynomial, state)
        raise AssertionError("a thousand hashes began with zeros")

    @classmethod
    def from_text(cls, polynomial: int, state: str) -> Lfsr:
        """A state written as the bits b_1 b_2 ... b_n, which are also the first n bits that come out."""
        width = gf2.degree(check(polynomial))
        if len(state) != width or set(state) - {"0", "1"}:
            raise ValueError(f"{state[:80]!r} is no state of {width} stages; write {width} characters 0 or 1")
        return cls(polynomial, int(state[::-1], 2))

    @property
    def width(self) -> int:
        """Stages."""
        return gf2.degree(self.polynomial)

    @property
    def taps(self) -> tuple[int, ...]:
        """The stages whose sum is fed back, counted from 1."""
        return tuple(exponent + 1 for exponent in _lower_terms(self.polynomial))

    def is_primitive(self) -> bool | None:
        """Whether the period is 2^width-1; None if that cannot be told here. It can for every width up to 64."""
        try:
            return gf2.is_primitive(self.polynomial)
        except gf2.UnknownFactors:
            return None

    def period(self) -> int | None:
        """After how many steps this very state comes back; None if that cannot be told here.

        It divides the polynomial's order. Of a polynomial that is not irreducible it depends on the state.
        """
        if self.is_primitive():
            return int(2**self.width - 1)
        try:
            order = gf2.order(self.polynomial)
            primes = gf2.order_factors(self.polynomial)
        except gf2.UnknownFactors:
            return None
        return gf2.least(order, primes, lambda steps: self.after(steps).state == self.state)

    def after(self, steps: int) -> Lfsr:
        """The register ``steps`` steps on, in time that grows with the number's length only.

        s(k + i) is a sum of the state's bits: those of the terms of x^(k+i) modulo the polynomial.
        """
        power, state = gf2.power_of_x(steps, self.polynomial), 0
        for stage in range(self.width):
            state |= ((power & self.state).bit_count() & 1) << stage
            power <<= 1
            if power >> self.width:
                power ^= self.polynomial
        return Lfsr(self.polynomial, state)

    def bits(self, count: int) -> Bits:
        """The next ``count`` bits, one a byte."""
        return np.unpackbits(self.packed(count).view(np.uint8), count=count, bitorder="little")

    def packed(self, count: int) -> Words:
        """The next ``count`` bits and what fills the last word, 64 a word, the first in the lowest bit."""
        total = -(-count // _WORD)
        words = np.empty(total, dtype="<u8")
        filled = min(total, self.width)
        start = _first_bits(self.polynomial, self.state, filled * _WORD)
        words[:filled] = np.frombuffer(start.to_bytes(filled * 8, "little"), dtype="<u8")
        _extend(words, filled, self.polynomial)
        return words


def _lower_terms(polynomial: int) -> list[int]:
    """Exponents of all terms but the highest."""
    return [exponent for exponent in range(gf2.degree(polynomial)) if polynomial >> exponent & 1]


# Over GF(2) f(x)^2 = f(x^2), so a sequence with the recurrence of f has also that of f with every distance doubled, any
# number of times. At distances of whole words it holds between words, and as many words as the shortest distance are
# one vector operation.


def _first_bits(polynomial: int, state: int, count: int) -> int:
    width, terms = gf2.degree(polynomial), _lower_terms(polynomial)
    bits, have, stride = state, width, 1
    while have < count:
        while have >= 2 * stride * width:
            stride *= 2
        new = min((width - terms[-1]) * stride, count - have)
        chunk = 0
        for term in terms:
            chunk ^= bits >> (have - (width - term) * stride)
        bits |= (chunk & ((1 << new) - 1)) << have
        have += new
    return bits & ((1 << count) - 1)


def _extend(words: Words, have: int, polynomial: int) -> None:
    """Fill ``words`` from the first ``have`` on, which are at least as many as the register has stages (or all)."""
    width, terms = gf2.degree(polynomial), _lower_terms(polynomial)
    stride = 1
    while have < len(words):
        while have >= 2 * stride * width and stride * width < _WORKING_SET:
            stride *= 2
        new = min((width - terms[-1]) * stride, len(words) - have)
        target = words[have : have + new]
        target[:] = words[have - width * stride :][:new]  # term 1 is always there
        for term in terms[1:]:
            np.bitwise_xor(target, words[have - (width - term) * stride :][:new], out=target)
        have += new
