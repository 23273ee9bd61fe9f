"""What happens to the frames of one direction of a link: pure, with the clock as an argument.

This is the reference: core.c does the same in the same order with the same generators, and a test compares the two
decision by decision. Everything is in whole nanoseconds and 53-bit whole numbers, so that both give equal results.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from testbed.net.wire.settings import Settings

ONE = 1 << 53
"""Probability 1. A generator draws whole numbers from 0 to ``ONE`` - 1; an event happens if the draw is below."""
_MASK = (1 << 64) - 1
ETHERNET_HEADER = 14

LEAST_QUEUE = 16 << 20
"""Bytes that the queue of a direction may always hold."""
ASSUMED_RATE = 20_000_000_000
"""Bits per second for the queue of a direction without a rate of its own."""

PROPERTIES = ("loss", "duplicate", "corrupt", "jitter")
"""Each has a generator of its own, so that a change of one does not change what the others draw."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """``Settings`` in the units of the machinery."""

    delay_ns: int = 0
    jitter_ns: int = 0
    loss: int = 0
    enter: int = 0
    """With ``burst``: chance that a burst of losses begins after a frame that passed."""
    leave: int = 0
    """With ``burst``: chance that a burst ends after a frame that was lost."""
    duplicate: int = 0
    corrupt: int = 0
    limit_bytes: int = LEAST_QUEUE
    burst: bool = False
    reorder: bool = False

    @property
    def single(self) -> bool:
        """Whether frames must be single packets rather than segments joined by the kernel (GSO): where packets are
        lost, doubled, damaged or overtaken, each must be so by itself."""
        return bool(self.loss or self.duplicate or self.corrupt or self.reorder)


NOTHING = Behaviour()
"""Frames pass as they are."""


def behaviour(settings: Settings) -> Behaviour:
    """Translate settings. Bursts of losses are the Gilbert model (Gilbert 1960) with every packet lost in the bad
    state: bursts of mean length b at a loss of q need a chance 1/b to leave it and q / (b (1 - q)) to enter it."""
    delay_ns, jitter_ns = settings.delay_us * 1000, settings.jitter_us * 1000
    rate = settings.rate_bps or ASSUMED_RATE
    in_flight = rate * (delay_ns + jitter_ns) // (8 * 10**9)
    burst = settings.loss_burst is not None and 0 < settings.loss < 1
    leave = 1 / settings.loss_burst if settings.loss_burst is not None and burst else 0.0
    enter = min(1.0, leave * settings.loss / (1 - settings.loss)) if burst else 0.0
    return Behaviour(
        delay_ns=delay_ns,
        jitter_ns=jitter_ns,
        loss=_threshold(settings.loss),
        enter=_threshold(enter),
        leave=_threshold(leave),
        duplicate=_threshold(settings.duplicate),
        corrupt=_threshold(settings.corrupt),
        limit_bytes=LEAST_QUEUE + 2 * in_flight,
        burst=burst,
        reorder=settings.reorder,
    )


def _threshold(probability: float) -> int:
    return round(probability * ONE)


def seeds(seed: int, link: str, direction: str, generation: int = 0) -> tuple[int, int, int, int]:
    """A seed for each of ``PROPERTIES``. ``generation`` counts restarts, so that a new core does not repeat what the
    last one drew."""
    text = f"{seed}/{link}/{direction}/{generation}"
    first, second, third, fourth = (
        int.from_bytes(hashlib.sha256(f"{text}/{name}".encode()).digest()[:8], "little") for name in PROPERTIES
    )
    return first, second, third, fourth


class Generator:
    """SplitMix64 (Steele, Lea and Flood 2014): small, good enough here, and the same in C."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed

    def draw(self) -> int:
        """A whole number from 0 to ``ONE`` - 1."""
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return (z ^ (z >> 31)) >> 11


Copy = tuple[int, int]
"""When a copy of a frame is due, and which of its bits is flipped; -1: none."""


class Direction:
    """The state of one direction: settings, generators, and what must not be overtaken."""

    __slots__ = ("_bad", "_corrupt", "_duplicate", "_jitter", "_last", "_loss", "_plain", "now")
    LOST: ClassVar[tuple[Copy, ...]] = ()

    def __init__(self, seeds: tuple[int, int, int, int], now: Behaviour = NOTHING) -> None:
        self._loss, self._duplicate, self._corrupt, self._jitter = (Generator(seed) for seed in seeds)
        self._bad = False
        self._last = 0
        self._plain = True
        self.now = NOTHING
        self.change(now)

    def arrive(self, time: int, length: int) -> tuple[Copy, ...]:
        """A frame of ``length`` bytes arrives: its copies in the order in which they are to be queued."""
        now = self.now
        if self._plain:
            self._last = due = max(time + now.delay_ns, self._last)
            return ((due, -1),)
        if now.loss and self._lost():
            return self.LOST
        first = self._copy(time, length)
        if now.duplicate and self._duplicate.draw() < now.duplicate:
            return first, self._copy(time, length)
        return (first,)

    def _lost(self) -> bool:
        now = self.now
        if not now.burst:
            return self._loss.draw() < now.loss
        lost = self._bad
        if self._loss.draw() < (now.leave if lost else now.enter):
            self._bad = not lost
        return lost

    def _copy(self, time: int, length: int) -> Copy:
        now = self.now
        bit = -1
        if now.corrupt and length > ETHERNET_HEADER and self._corrupt.draw() < now.corrupt:
            bits = 8 * (length - ETHERNET_HEADER)  # a real receiver drops a frame with a damaged header by its FCS
            bit = 8 * ETHERNET_HEADER + (self._corrupt.draw() * bits >> 53)
        due = time + now.delay_ns
        if now.jitter_ns:
            due = max(time, due + (self._jitter.draw() * (2 * now.jitter_ns + 1) >> 53) - now.jitter_ns)
        if now.reorder:
            self._last = max(self._last, due)
        else:
            self._last = due = max(due, self._last)
        return due, bit

    def change(self, now: Behaviour) -> None:
        """Behave differently from now on. Frames in flight keep their due time, as in the kernel's netem; so where
        order is kept, those sent after a change to a shorter delay wait for them."""
        old, self.now = self.now, now
        self._plain = not (now.jitter_ns or now.single)
        if (now.loss, now.burst, now.leave) != (old.loss, old.burst, old.leave):
            self._bad = now.burst and self._loss.draw() < now.loss
