"""The two queues of a TCP socket in repair mode: where they are, what is in them, and filling them."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

from testbed.pool.migrate.kernel import (
    RECEIVE_QUEUE,
    SEND_QUEUE,
    SIOCINQ,
    SIOCOUTQ,
    SIOCOUTQNSD,
    TCP_QUEUE_SEQ,
    TCP_REPAIR_QUEUE,
)
from testbed.pool.migrate.state import MASK

_TCP = socket.IPPROTO_TCP
_WORD = struct.Struct("=I")
_PIECE = 1 << 18


def positions(connection: socket.socket) -> tuple[int, int, int, int, int]:
    """Sequence numbers after what was written and received; unacknowledged, unsent and unread bytes."""
    connection.setsockopt(_TCP, TCP_REPAIR_QUEUE, RECEIVE_QUEUE)
    received = _WORD.unpack(connection.getsockopt(_TCP, TCP_QUEUE_SEQ, 4))[0]
    connection.setsockopt(_TCP, TCP_REPAIR_QUEUE, SEND_QUEUE)
    sent = _WORD.unpack(connection.getsockopt(_TCP, TCP_QUEUE_SEQ, 4))[0]
    fd = connection.fileno()
    outstanding, unsent, waiting = (count(fd, request) for request in (SIOCOUTQ, SIOCOUTQNSD, SIOCINQ))
    return sent, received, outstanding, unsent, waiting


def count(fd: int, request: int) -> int:
    """What one of the ioctls of tcp(7) counts."""
    answer: int = _WORD.unpack(fcntl.ioctl(fd, request, b"\0\0\0\0"))[0]
    return answer


def peek(connection: socket.socket, length: int) -> bytes:
    """All of the chosen queue, which stays as it is. OSError if the kernel shows less than ``length`` bytes."""
    if length <= 0:
        return b""
    data = connection.recv(length, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    if len(data) != length:
        raise OSError(errno.EIO, f"the kernel shows {len(data)} of {length} bytes of a queue")
    return data


def fill(connection: socket.socket, data: bytes) -> None:
    """Put all of ``data`` into a queue; it has been given the room, so that nothing here waits for the other side."""
    view = memoryview(data)
    while view:
        view = view[connection.send(view[:_PIECE], socket.MSG_DONTWAIT) :]


def set_sequence(connection: socket.socket, queue: int, number: int) -> None:
    """Set the sequence number at the end of a queue that is empty."""
    connection.setsockopt(_TCP, TCP_REPAIR_QUEUE, queue)
    connection.setsockopt(_TCP, TCP_QUEUE_SEQ, _WORD.pack(number & MASK))
