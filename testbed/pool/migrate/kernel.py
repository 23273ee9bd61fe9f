"""Numbers of the kernel's interface to TCP sockets (``linux/tcp.h``, ``asm-generic/socket.h``) that Python lacks."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

TCP_REPAIR = 19
TCP_REPAIR_QUEUE = 20
TCP_QUEUE_SEQ = 21
TCP_REPAIR_OPTIONS = 22
TCP_TIMESTAMP = 24
TCP_REPAIR_WINDOW = 29
TCP_ULP = 31
REPAIR_ON, REPAIR_OFF, REPAIR_OFF_SILENT = 1, 0, -1
"""The last one leaves out the window probe that the kernel sends otherwise."""
NO_QUEUE, RECEIVE_QUEUE, SEND_QUEUE = 0, 1, 2
OPTION_MSS, OPTION_WINDOW, OPTION_SACK, OPTION_TIMESTAMP = 2, 3, 4, 8
"""Kinds of TCP options (RFC 9293, 7323, 2018)."""
INFO_TIMESTAMPS, INFO_SACK, INFO_WSCALE = 1, 2, 4
"""Bits of ``tcpi_options``."""
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_BUF_LOCK = 32, 33, 26, 27, 72
SIOCINQ, SIOCOUTQ, SIOCOUTQNSD = 0x541B, 0x5411, 0x894B

ESTABLISHED, SYN_SENT, SYN_RECV, FIN_WAIT1, FIN_WAIT2, TIME_WAIT = 1, 2, 3, 4, 5, 6
CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, CLOSING = 7, 8, 9, 10, 11
STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
}
FIN_SENT = frozenset({FIN_WAIT1, FIN_WAIT2, CLOSING, LAST_ACK})
"""States in which this side has closed its direction."""
FIN_RECEIVED = frozenset({CLOSE_WAIT, LAST_ACK, CLOSING})
"""States in which the other side has."""
MOVABLE = frozenset({ESTABLISHED, CLOSE_WAIT}) | FIN_SENT

Instruction = tuple[int, int, int, int]
"""Of a classic BPF program (``struct sock_filter``): code, jump if true, jump if false, constant."""


class Filter:
    """A program by which a socket takes in only what it accepts."""

    def __init__(self, program: Sequence[Instruction]) -> None:
        self._code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
        self._value = struct.pack("@HP", len(program), ctypes.addressof(self._code))

    def attach(self, target: socket.socket) -> None:
        """Put it up at a socket, which keeps a copy."""
        target.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, self._value)
