"""Streams of bits in pool time: pseudo-random, given, read from a file, or live; and their combination.

All times are whole microseconds since the pool started. Bit k of a stream (from 0) stands at ``first + k * period``.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from testbed.errors import TestbedError
from testbed.pool.schedule.lfsr import Lfsr

FOREVER = 2**62
"""A time that never comes."""

Instants = NDArray[np.int64]
How = Literal["or", "xor"]


class Stream(Protocol):
    """Bits at regular times."""

    @property
    def first(self) -> int:
        """When the first bit stands."""

    @property
    def period(self) -> int:
        """From one bit to the next."""

    @property
    def end(self) -> int:
        """When the last bit stands; ``FOREVER`` if there is none. After it there are only zeros."""

    def known(self, now: int) -> int:
        """Until when (included) all bits are known at ``now``; ``FOREVER`` unless they come from live detectors."""

    def ones(self, after: int, until: int) -> Instants:
        """When the 1 bits stand that are later than ``after`` and not later than ``until``, in order."""


class Given:
    """Bits that are known from the start. After the last one there are only zeros."""

    def __init__(self, bits: Iterable[int] | str, period: int, first: int | None = None) -> None:
        """``first`` is one period unless given. ValueError if a bit is neither 0 nor 1, or a time is not positive."""
        self._values = check_bits(bits)
        self.period, self.first = _times(period, first)
        self._ones = np.flatnonzero(self._values).astype(np.int64) * self.period + self.first

    @property
    def end(self) -> int:
        """When the last bit stands."""
        return self.first + (len(self._values) - 1) * self.period

    def known(self, now: int) -> int:
        """For ever."""
        return FOREVER

    def ones(self, after: int, until: int) -> Instants:
        """See ``Stream``."""
        low, high = np.searchsorted(self._ones, (after, until), side="right")
        return self._ones[low:high]


class PseudoRandom:
    """The endless output of a shift register; any part of it can be had at any time."""

    BLOCK = 2**16
    """Bits that are made at a time."""
    end = FOREVER

    def __init__(self, register: Lfsr, period: int, first: int | None = None) -> None:
        """``first`` is one period unless given."""
        self.period, self.first = _times(period, first)
        self._start = register
        self._number, self._register = 0, register
        self._ones = np.flatnonzero(register.bits(self.BLOCK))

    def known(self, now: int) -> int:
        """For ever."""
        return FOREVER

    def ones(self, after: int, until: int) -> Instants:
        """See ``Stream``."""
        low = max(0, (after - self.first) // self.period + 1)
        high = (until - self.first) // self.period + 1
        found = [np.empty(0, dtype=np.int64)]
        for number in range(low // self.BLOCK, (max(low, high) - 1) // self.BLOCK + 1):
            ones = self._block(number) + number * self.BLOCK
            found.append(ones[np.searchsorted(ones, low) : np.searchsorted(ones, high)])
        return np.concatenate(found) * self.period + self.first

    def _block(self, number: int) -> Instants:
        if number != self._number:
            near, start = (self._register, self._number) if number > self._number else (self._start, 0)
            self._register = near.after((number - start) * self.BLOCK)
            self._number = number
            self._ones = np.flatnonzero(self._register.bits(self.BLOCK))
        return self._ones


class Live:
    """Bits from detectors: a bit is 1 if something was detected since the bit before it. It is known at its time."""

    end = FOREVER

    def __init__(self, period: int, first: int | None = None) -> None:
        """``first`` is one period unless given."""
        self.period, self.first = _times(period, first)
        self._ones: list[int] = []

    def detected(self, now: int) -> None:
        """Something was detected at ``now``. A bit whose time has passed cannot change any more."""
        instant = self.first + max(0, -((self.first - now) // self.period)) * self.period
        at = bisect.bisect_left(self._ones, instant)
        if at == len(self._ones) or self._ones[at] != instant:
            self._ones.insert(at, instant)

    def known(self, now: int) -> int:
        """Just before the next bit."""
        return self.first + ((now - self.first) // self.period + 1) * self.period - 1

    def ones(self, after: int, until: int) -> Instants:
        """See ``Stream``; meaningful up to ``known``."""
        low, high = bisect.bisect_right(self._ones, after), bisect.bisect_right(self._ones, until)
        return np.array(self._ones[low:high], dtype=np.int64)


@dataclass(frozen=True)
class Combined:
    """Several streams as one. Where a stream has no bit and another has, it counts as 0.

    ``or`` is what the paper's output shows, ``xor`` what its text says.
    """

    streams: Mapping[str, Stream]
    how: How = "or"

    @property
    def period(self) -> int:
        """The shortest of the periods; ``FOREVER`` of nothing."""
        return min((stream.period for stream in self.streams.values()), default=FOREVER)

    @property
    def end(self) -> int:
        """When the last bit of all stands; -1 of nothing."""
        return max((stream.end for stream in self.streams.values()), default=-1)

    def known(self, now: int) -> int:
        """Until when the bits of all streams are known."""
        return min((stream.known(now) for stream in self.streams.values()), default=FOREVER)

    def ones(self, after: int, until: int) -> Instants:
        """When the 1 bits of the combination stand; see ``Stream.ones``."""
        parts = [stream.ones(after, until) for stream in self.streams.values()]
        if len(parts) < 2:
            return parts[0] if parts else np.empty(0, dtype=np.int64)
        instants, counts = np.unique(np.concatenate(parts), return_counts=True)
        return instants if self.how == "or" else instants[counts % 2 == 1]

    def causes(self, at: int) -> tuple[str, ...]:
        """The streams that have a 1 at this time."""
        return tuple(name for name, stream in self.streams.items() if len(stream.ones(at - 1, at)))

    def text(self, until: int) -> str:
        """The combination as 0 and 1, a character each time that the fastest stream has a bit.

        ValueError if a stream has a bit between two of the fastest's.
        """
        fastest = min(self.streams.values(), key=lambda stream: stream.period)
        places, off = np.divmod(self.ones(-1, until) - fastest.first, fastest.period)
        if off.any() or (places < 0).any():
            raise ValueError("some bits stand between those of the fastest stream; they cannot be written in one row")
        bits = np.zeros((until - fastest.first) // fastest.period + 1, dtype=np.uint8)
        bits[places] = 1
        return "".join(map(str, bits))


def check_bits(bits: Iterable[int] | str) -> NDArray[np.uint8]:
    """The bits as an array; ValueError names the first item that is neither 0 nor 1, or says that there is none."""
    if isinstance(bits, str):
        return parse_bits(bits)
    values = list(bits)
    for number, value in enumerate(values, 1):
        if isinstance(value, bool) or value not in (0, 1):
            raise ValueError(f"item {number} is {value!r}, which is no bit; write 0 or 1")
    if not values:
        raise ValueError("there are no bits; write at least one, 0 or 1")
    return np.array(values, dtype=np.uint8)


def parse_bits(text: str) -> NDArray[np.uint8]:
    """Text of 0 and 1, spaces and line ends between them, to an array; ValueError names the first other character."""
    for number, character in enumerate(text, 1):
        if character not in "01" and not character.isspace():
            raise ValueError(f"character {number} is {character!r}, which is no bit; write 0 or 1")
    return check_bits([int(character) for character in text if not character.isspace()])


def read_bits(file: Path) -> NDArray[np.uint8]:
    """Bits from a text file: 0 and 1, blanks between them, and comments from ``#`` to the end of a line.

    Raises TestbedError with file, line and column of a character that is no bit, or if the file cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TestbedError(
            f"cannot be read: {reason}", where=str(file), remedy="name a text file of 0 and 1"
        ) from error
    found: list[int] = []
    for line, content in enumerate(lines, 1):
        for column, character in enumerate(content.partition("#")[0], 1):
            if character in "01":
                found.append(int(character))
            elif not character.isspace():
                raise TestbedError(
                    f"{character!r} is no bit",
                    where=f"{file}:{line}:{column}",
                    remedy="write 0 or 1; comments begin with #",
                )
    if not found:
        raise TestbedError("there are no bits in it", where=str(file), remedy="write at least one, 0 or 1")
    return np.array(found, dtype=np.uint8)


def _times(period: int, first: int | None) -> tuple[int, int]:
    if period <= 0:
        raise ValueError("the period of a bit is nothing; give a time, such as 60s")
    if first is not None and first < 0:
        raise ValueError("the first bit stands before the start; give a time from 0s on")
    return period, period if first is None else first
