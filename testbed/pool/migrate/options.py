"""The settings of a socket that move with its connection: those that were changed, and no others."""

from __future__ import annotations

import socket
from functools import cache

from testbed.pool.migrate.kernel import SO_BUF_LOCK, SO_RCVBUFFORCE, SO_SNDBUFFORCE

_TCP, _SOL, _IP, _IP6 = socket.IPPROTO_TCP, socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_IPV6
Setting = tuple[int, int, int]
"""Level, option, value."""

_COMMON: tuple[tuple[int, int], ...] = (
    (_SOL, socket.SO_KEEPALIVE),
    (_SOL, socket.SO_OOBINLINE),
    (_SOL, socket.SO_PRIORITY),
    (_SOL, socket.SO_MARK),
    (_SOL, socket.SO_RCVLOWAT),
    (_SOL, 47),  # SO_MAX_PACING_RATE
    (_TCP, socket.TCP_NODELAY),
    (_TCP, socket.TCP_CORK),
    (_TCP, socket.TCP_KEEPIDLE),
    (_TCP, socket.TCP_KEEPINTVL),
    (_TCP, socket.TCP_KEEPCNT),
    (_TCP, socket.TCP_USER_TIMEOUT),
    (_TCP, socket.TCP_LINGER2),
    (_TCP, socket.TCP_NOTSENT_LOWAT),
)
_OF_FAMILY: dict[int, tuple[tuple[int, int], ...]] = {
    socket.AF_INET: ((_IP, socket.IP_TOS), (_IP, socket.IP_TTL)),
    socket.AF_INET6: ((_IP6, socket.IPV6_TCLASS), (_IP6, socket.IPV6_UNICAST_HOPS)),
}
_LINGER = 8  # struct linger
_NAME = 16  # longest name of a congestion control


def carried(family: int) -> tuple[tuple[int, int], ...]:
    """Level and option of all whole numbers that move."""
    return _COMMON + _OF_FAMILY[family]


@cache
def defaults(family: int) -> dict[tuple[int, int], int]:
    """What a socket has that nobody has touched; in this namespace, but they differ in none of ours."""
    with socket.socket(family, socket.SOCK_STREAM) as fresh:
        return {key: fresh.getsockopt(*key) for key in carried(family)}


def read(connection: socket.socket, family: int) -> tuple[Setting, ...]:
    """The settings that differ from a new socket's."""
    get = connection.getsockopt
    return tuple([(a, b, value) for (a, b), plain in defaults(family).items() if (value := get(a, b)) != plain])


def read_linger(connection: socket.socket) -> bytes:
    """``struct linger``; empty if it is off."""
    value = connection.getsockopt(_SOL, socket.SO_LINGER, _LINGER)
    return value if value[0] else b""


def read_congestion(connection: socket.socket) -> bytes:
    """Name of the congestion control."""
    return connection.getsockopt(_TCP, socket.TCP_CONGESTION, _NAME).rstrip(b"\0")


def read_buffers(connection: socket.socket) -> tuple[int, int, int]:
    """Sizes of send and receive buffer as the kernel counts them, and which of them were fixed (``SO_BUF_LOCK``)."""
    get = connection.getsockopt
    return get(_SOL, socket.SO_SNDBUF), get(_SOL, socket.SO_RCVBUF), get(_SOL, SO_BUF_LOCK)


def write(connection: socket.socket, settings: tuple[Setting, ...], linger: bytes) -> None:
    """Give a socket these settings."""
    for level, option, value in settings:
        connection.setsockopt(level, option, value)
    if linger:
        connection.setsockopt(_SOL, socket.SO_LINGER, linger)


def choose_congestion(connection: socket.socket, name: bytes) -> None:
    """Set the congestion control of a socket that is not connected yet."""
    if read_congestion(connection) != name:
        connection.setsockopt(_TCP, socket.TCP_CONGESTION, name)


def size_buffers(connection: socket.socket, send: int, receive: int) -> None:
    """Set both buffers, whatever the machine's limits; the kernel doubles what it is told, so it is told the half."""
    connection.setsockopt(_SOL, SO_SNDBUFFORCE, send // 2)
    connection.setsockopt(_SOL, SO_RCVBUFFORCE, receive // 2)


def lock_buffers(connection: socket.socket, which: int) -> None:
    """Fix the buffers as they were fixed; those that were not grow again as the kernel sees fit."""
    connection.setsockopt(_SOL, SO_BUF_LOCK, which)
