"""How the links of a self-check are timed and loaded: many directions at once, by one thread."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from testbed.measure.frames import LEAST_FRAME, Direction

_STAMPS, _FEWEST_STAMPS = 20, 5
_SPACING, _WIDEST_SPACING = 0.02, 0.05
_STAMP_SECONDS = 2.0
_LATE = 0.5
"""Seconds that a frame may be late before it is lost."""
_OVERLOAD, _LEAST_OVERLOAD = 1.3, 1.1
"""What a link is offered of its rate; with less than the second it was not loaded."""
_WARM_UP = 0.1
_WINDOW, _LONGEST_WINDOW, WINDOWS = 0.3, 1.5, 4
_FRAMES = 100
"""In a window, unless the rate is too low for that."""
_QUEUE = 0.1
"""Seconds; a sender that was held up does not make up for more."""
_HELD_UP = 0.04
"""Seconds; after a longer pause the link's queue (50 ms) may have run empty."""
_FRAMES_A_SECOND = 20_000
"""What is loaded at once together."""
MOST_FRAMES_A_SECOND = 80_000
"""A link that carries more cannot be loaded by one Python thread."""
_SLICE = 0.001


@dataclass
class Timing:
    """Stamped frames of one direction."""

    direction: Direction
    sent: int = 0
    delays: list[float] = field(default_factory=list)
    """Seconds on the way, of those that came."""
    error: str = ""
    """What the kernel said to the last that could not be sent."""


def time_delays(directions: Sequence[Direction]) -> list[Timing]:
    """Send stamped frames in all directions at the same time. Takes 0.4 s, or up to 2 s where links are slow, and as
    long as the longest delay; half a second more where frames are lost."""
    timings = [Timing(direction) for direction in directions]
    spacing = max(_spacing(direction) for direction in directions)
    count = max(_FEWEST_STAMPS, min(_STAMPS, int(_STAMP_SECONDS / spacing)))
    longest = max((d.impairment.delay_us + d.impairment.jitter_us) / 1e6 for d in directions)
    by_fd = {timing.direction.receiver.fileno(): timing for timing in timings}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)

    def collect(until: float, enough: Callable[[], bool] = lambda: False) -> None:
        while (left := until - time.monotonic()) > 0 and not enough():
            for fd, _ in poll.poll(1000 * left):
                by_fd[fd].delays.extend(delay for _, delay in by_fd[fd].direction.stamps())

    start = time.monotonic()
    for number in range(count):
        for timing in timings:
            try:
                timing.direction.stamp(number)
                timing.sent += 1
            except OSError as error:
                timing.error = error.strerror or str(error)
        collect(start + (number + 1) * spacing)
    collect(time.monotonic() + longest + _LATE, lambda: all(len(t.delays) >= t.sent for t in timings))
    return timings


def _spacing(direction: Direction) -> float:
    """Seconds between two frames: they must neither wait for each other nor, where order is kept, push each other."""
    way = direction.impairment
    least = max(_SPACING, min(_WIDEST_SPACING, 2 * way.jitter_us / 1e6))
    return max(least, 3 * 8 * LEAST_FRAME / way.rate_bps) if way.rate_bps else least


@dataclass
class Load:
    """One direction that is offered more than its rate, and what came out of it window by window."""

    direction: Direction
    rate: int
    """Bits per second, all headers counted."""
    right: Callable[[float, float], bool]
    """Whether a rate that was seen is the right one; the second number is what one frame more or less is."""
    size: int = 0
    """Of a frame, bytes."""
    window: float = 0.0
    """Seconds."""
    windows: list[float] = field(default_factory=list)
    """Bits per second."""
    fair: list[float] = field(default_factory=list)
    """Those of the windows in which the link was full: frames were refused or enough were offered, without a pause."""
    done: bool = False
    _due: int = 0
    _offered: int = 0
    _refused: int = 0
    _pause: float = 0.0
    _before: float = 0.0
    _next: float = 0.0
    _last: tuple[float, int, int, int] | None = None

    def __post_init__(self) -> None:
        # enough frames in a window, smaller ones where the link is slow
        fitting = int(self.rate * _WINDOW / 8 / _FRAMES)
        self.size = max(LEAST_FRAME, min(self.direction.link.mtu + 14, fitting))
        self.window = max(_WINDOW, min(_LONGEST_WINDOW, 8 * self.size * _FRAMES / self.rate))
        way = self.direction.impairment
        self._next = _WARM_UP + (way.delay_us + way.jitter_us) / 1e6

    @property
    def frames_a_second(self) -> float:
        """At the link's rate."""
        return self.rate / 8 / self.size

    @property
    def grain(self) -> float:
        """Bits per second that one frame more or less makes in a window."""
        return 8 * self.size / self.window

    @property
    def nearest(self) -> float:
        """The window that is nearest to the rate: a machine that was busy for a while spoils only some."""
        return min(self.windows, key=lambda seen: abs(seen - self.rate))

    def step(self, now: float) -> None:
        """Send what is due ``now``, seconds after the start, and count if a window is over."""
        self._pause, self._before = max(self._pause, now - self._before), now
        a_second = _OVERLOAD * self.frames_a_second
        due = int(now * a_second) + 1
        self._due = max(self._due, due - int(_QUEUE * a_second) - 1)
        while self._due < due:
            self._due += 1
            self._offered += 1
            self._refused += not self.direction.load(self.size)
        if now >= self._next:
            self._count()
            self._next += self.window

    def _count(self) -> None:
        now, total = self.direction.received_bytes()
        if self._last is not None:
            before, then, offered, refused = self._last
            seconds = now - before
            self.windows.append(8 * (total - then) / seconds)
            enough = (self._offered - offered) >= _LEAST_OVERLOAD * self.frames_a_second * seconds
            if self._pause < _HELD_UP and (enough or self._refused > refused):
                self.fair.append(self.windows[-1])
            self.done = self.right(self.windows[-1], self.grain) or len(self.windows) == WINDOWS
        self._pause = 0.0
        self._last = now, total, self._offered, self._refused


def load_at_once(group: Sequence[Load]) -> None:
    """Load all of ``group`` until each has had a window that is right, or all its windows. Takes 0.4 s, up to 6 s."""
    start = time.monotonic()
    while not all(load.done for load in group):
        for load in group:
            if not load.done:
                load.step(time.monotonic() - start)
        time.sleep(_SLICE)


def groups(loads: Sequence[Load]) -> Iterator[list[Load]]:
    """Loads in groups that one thread can serve at once."""
    group: list[Load] = []
    for load in loads:
        if group and sum(one.frames_a_second for one in [*group, load]) > _FRAMES_A_SECOND:
            yield group
            group = []
        group.append(load)
    if group:
        yield group
