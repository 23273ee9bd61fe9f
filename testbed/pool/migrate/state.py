"""A connection as it can be taken along, and the reasons for which one cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.errors import TestbedError
from testbed.pool.migrate.kernel import FIN_RECEIVED, STATES
from testbed.pool.migrate.options import Setting

MASK = 0xFFFFFFFF
"""Sequence numbers go round."""
NO_TCP, PROTOCOL, STATE, STATE_NOW, UPPER_LAYER, URGENT = -1, -2, -3, -4, -5, -6
"""What a connection is refused for; the same numbers in core.c."""
_MULTIPATH = 262  # IPPROTO_MPTCP


class Refused(TestbedError):
    """A connection that cannot be moved, and why. It goes on where it is."""


def refusal(why: int, detail: int = 0) -> Refused:
    """The reason in words; ``detail`` is the protocol or state that was found."""
    protocol = "Multipath TCP" if detail == _MULTIPATH else f"protocol {detail}"
    state = STATES.get(detail, detail)
    words = {
        NO_TCP: "it is no TCP socket",
        PROTOCOL: f"it speaks {protocol}, whose state cannot be taken along",
        STATE: f"it is in state {state}; only a connection that stands can be moved",
        STATE_NOW: f"it has come to state {state} meanwhile",
        UPPER_LAYER: "the kernel encrypts it (TLS), and gives its keys and record numbers to nobody",
        URGENT: "it holds urgent data that the program has not read, and their mark cannot be taken along",
    }
    return Refused(words[why])


@dataclass(frozen=True, slots=True)
class TcpState:
    """Everything about a connection that the kernel lets be taken along."""

    family: int
    state: int
    """As in ``kernel.STATES``."""
    local: tuple[Any, ...]
    peer: tuple[Any, ...]
    send_seq: int
    """Sequence number after the last byte of the send queue."""
    receive_seq: int
    """Sequence number after the last byte of the receive queue."""
    send_queue: bytes
    """Bytes that the other side has not acknowledged, or not been sent."""
    unsent: int
    """How many at its end were never sent."""
    receive_queue: bytes
    """Bytes that the program has not read."""
    window: tuple[int, int, int, int, int]
    mss: int
    send_scale: int
    receive_scale: int
    agreed: int
    """Bits of ``tcpi_options``: timestamps, SACK, window scaling."""
    timestamp: int
    send_buffer: int
    receive_buffer: int
    fixed_buffers: int
    settings: tuple[Setting, ...]
    linger: bytes
    congestion: bytes
    """Name of the congestion control. What it has learned stays behind."""

    @property
    def size(self) -> int:
        """Bytes in both queues."""
        return len(self.send_queue) + len(self.receive_queue)

    @property
    def unacknowledged(self) -> int:
        """Sequence number of the oldest byte that the other side has not acknowledged."""
        return (self.send_seq - len(self.send_queue)) & MASK

    @property
    def quiet(self) -> bool:
        """Whether no packet needs to be sent for it once it runs (``packets.Injector``)."""
        return not self.send_queue and self.state not in FIN_RECEIVED
