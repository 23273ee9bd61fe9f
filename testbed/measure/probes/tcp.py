"""How long a TCP connection takes to be made."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.measure.probes.base import Recorder, connect, in_node, locate_port, recording

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


@dataclass(frozen=True, slots=True)
class Connect:
    """One attempt. ``seconds`` is from the first SYN to the handshake's end, None where there was none."""

    source: str
    target: str
    started: float
    """``time.monotonic()``."""
    seconds: float | None
    outcome: str
    """``ok``, ``timeout``, ``refused``, ``unreachable``, ``reset``, or an errno's name."""

    @property
    def ok(self) -> bool:
        """Whether there was a connection."""
        return self.outcome == "ok"


def tcp_connect(
    lab: Lab, source: str, target: str, *, timeout: float = 5.0, recorder: Recorder | None = None
) -> Connect:
    """Connect from node ``source`` to ``target`` (``b:80``), and close. Samples: ``tcp_connect``, seconds."""
    place, port = locate_port(lab, target)
    with recording(recorder, "tcp", source, target) as call:
        opened = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_STREAM))
        with opened:
            started = time.monotonic()
            outcome = connect(opened, place, port, timeout)
            taken = time.monotonic() - started
        seconds = taken if outcome == "ok" else None
        call.sample("tcp_connect", seconds, started)
        call.result(outcome=outcome, seconds=None if seconds is None else round(seconds, 9))
    return Connect(source, target, started, seconds, outcome)
