"""What supervisor and core say to each other: fixed-size messages on a socket pair, and a table of counters in shared
memory. core.c has the same layout; ``VERSION`` must change in both together.

Every request is answered. Only the supervisor has the other end of the socket, so nothing here need be defended
against; users talk to the supervisor (``control.py``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from enum import IntEnum

from testbed.net.wire.model import NOTHING, Behaviour

VERSION = 1
DIRECTIONS = ("forward", "backward")
"""From end a to end b, and back; the index is the direction's number."""


class Kind(IntEnum):
    """What a message is about. An answer has the kind of its request."""

    HELLO = 0
    """From the core at its start: ``argument`` = whether it runs in real time, first value = ``VERSION``."""
    ADD = 1
    """A link, closed at first; two TAP descriptors come along. Values of the answer: their numbers in the core."""
    SEED = 2
    """Generators of one direction start anew from ``values``."""
    SET = 3
    """One direction behaves differently. The answer has the behaviour that is now in force."""
    OPEN = 4
    """Carry frames (``argument`` 1) or discard them and all in flight (0)."""
    REMOVE = 5
    """Forget a link, and with it its descriptors and frames in flight."""
    PING = 6
    """Are you there? Brings the counters of all links up to date. Values of the answer: frames and bytes in flight."""


_HEAD = struct.Struct("=5I4x")
_BEHAVIOUR = struct.Struct("=2q6Q2I")
_VALUES = struct.Struct("=4Q")
SIZE = _HEAD.size + _BEHAVIOUR.size + _VALUES.size


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer."""

    kind: int
    sequence: int = 0
    link: int = 0
    argument: int = 0
    """Number of the direction, or 0 and 1."""
    error: int = 0
    """In an answer: the error number, 0 if the request was done."""
    behaviour: Behaviour = NOTHING
    values: tuple[int, int, int, int] = (0, 0, 0, 0)

    def pack(self) -> bytes:
        """As bytes."""
        head = _HEAD.pack(self.kind, self.sequence, self.link, self.argument, self.error)
        return head + pack_behaviour(self.behaviour) + _VALUES.pack(*self.values)


def pack_behaviour(it: Behaviour) -> bytes:
    """As bytes, for messages and for the test that compares both cores."""
    whole = (it.delay_ns, it.jitter_ns, it.loss, it.enter, it.leave, it.duplicate, it.corrupt, it.limit_bytes)
    return _BEHAVIOUR.pack(*whole, it.burst, it.reorder)


def unpack(data: bytes) -> Message:
    """The message in ``data``; struct.error if it has another size."""
    if len(data) != SIZE:
        raise struct.error(f"a message has {SIZE} bytes, not {len(data)}")
    kind, sequence, link, argument, error = _HEAD.unpack_from(data)
    delay, jitter, loss, enter, leave, duplicate, corrupt, limit, burst, reorder = _BEHAVIOUR.unpack_from(
        data, _HEAD.size
    )
    values = _VALUES.unpack_from(data, _HEAD.size + _BEHAVIOUR.size)
    behaviour = Behaviour(
        delay, jitter, loss, enter, leave, duplicate, corrupt, limit, burst=bool(burst), reorder=bool(reorder)
    )
    return Message(kind, sequence, link, argument, error, behaviour, values)


LATENESS_BUCKETS = 24
"""Bucket k counts frames that left less than 2^k microseconds after they were due, and not in a lower bucket; the last
one counts all the rest."""
SLOT = 512
"""Bytes of one direction's counters in shared memory: the plain ones as 64-bit words, and the lateness from word 16."""
_LATENESS_AT = 16 * 8
MOST_LINKS = 4096
TABLE = 2 * MOST_LINKS * SLOT
"""Bytes of the whole table; only pages in use take memory."""


@dataclass(slots=True)
class Counters:
    """What happened in one direction since the link was made, restarts of the core included."""

    frames: int = 0
    """Frames that came in. A frame is a packet, or a run of TCP segments that the kernel handed over as one (GSO)."""
    bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    lost: int = 0
    duplicated: int = 0
    corrupted: int = 0
    full: int = 0
    """Dropped for want of room."""
    closed: int = 0
    """Discarded because the link was down."""
    refused: int = 0
    """Not taken by the receiving interface."""
    latest_ns: int = 0
    """The longest time by which a frame left too late."""

    @property
    def in_flight(self) -> int:
        """Frames on their way; of a core that has died, those that it took along."""
        gone = self.delivered + self.lost + self.full + self.closed + self.refused
        return self.frames + self.duplicated - gone


_PLAIN = struct.Struct(f"={len(fields(Counters))}Q")
_LATENESS = struct.Struct(f"={LATENESS_BUCKETS}Q")


def slot(link: int, direction: int) -> int:
    """Where the counters of a direction begin."""
    return (2 * link + direction) * SLOT


def read_counters(table: memoryview, link: int, direction: int) -> tuple[Counters, list[int]]:
    """Counters and lateness of a direction."""
    at = slot(link, direction)
    return Counters(*_PLAIN.unpack_from(table, at)), list(_LATENESS.unpack_from(table, at + _LATENESS_AT))


def write_counters(table: memoryview, link: int, direction: int, counters: Counters, lateness: list[int]) -> None:
    """Put counters and lateness of a direction into the table."""
    at = slot(link, direction)
    _PLAIN.pack_into(table, at, *(getattr(counters, field.name) for field in fields(Counters)))
    _LATENESS.pack_into(table, at + _LATENESS_AT, *lateness)


def quantile_us(lateness: list[int], share: float) -> int:
    """Upper bound in microseconds of the lateness that ``share`` of the frames did not exceed; 0 if there were none."""
    wanted = share * sum(lateness)
    seen = 0
    for bucket, count in enumerate(lateness):
        seen += count
        if count and seen >= wanted:
            return 1 << bucket
    return 0
