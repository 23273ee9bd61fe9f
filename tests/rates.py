"""How fast something comes, on a machine that may stand still now and then."""

from __future__ import annotations

import socket
import time


def middle_rate(connection: socket.socket, spans: int = 9, seconds: float = 0.3) -> float:
    """Bits a second that a connection receives: the middle one of several spans.

    One in which the machine stands still has too little, and the next one too much.
    """
    return sorted(_rate(connection, seconds) for _ in range(spans))[spans // 2]


def _rate(connection: socket.socket, seconds: float) -> float:
    start, total = time.monotonic(), 0
    while (now := time.monotonic()) < start + seconds:
        total += 8 * len(connection.recv(65536))
    return total / (now - start)
