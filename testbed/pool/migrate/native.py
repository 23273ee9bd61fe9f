"""The work on sockets in C: core.c, compiled as a library where a C compiler is or was, else the reference.

Run as ``python -m testbed.pool.migrate.native`` it compiles ahead of time and says which of them will be used.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from testbed import compiled
from testbed.errors import TestbedError
from testbed.pool.migrate import options, tcp
from testbed.pool.migrate.kernel import FIN_RECEIVED
from testbed.pool.migrate.sockets import Core, Failed, PlainSockets
from testbed.pool.migrate.state import TcpState, refusal

SOURCE = Path(__file__).with_name("core.c")
_FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC", "-pthread")
_MOST_SETTINGS = 24
_I, _U = ctypes.c_int32, ctypes.c_uint32


class _Setting(ctypes.Structure):
    _fields_ = (("level", _I), ("option", _I), ("value", _I))


class _Settings(ctypes.Structure):
    _fields_ = (("count", _I), ("of", _Setting * _MOST_SETTINGS))


class _Row(ctypes.Structure):
    """``struct row`` of core.c."""

    _fields_ = (
        *((name, _I) for name in ("old", "made", "skip", "error", "detail", "family", "state")),
        *((name, _U) for name in ("send_seq", "receive_seq", "send_length", "unsent", "receive_length")),
        ("window", _U * 5),
        ("mss", _I),
        *((name, _U) for name in ("send_scale", "receive_scale", "agreed", "timestamp")),
        *((name, _I) for name in ("send_buffer", "receive_buffer", "fixed_buffers")),
        ("settings", _Settings),
        ("linger", _I * 2),
        ("congestion", ctypes.c_char * 16),
        ("local", ctypes.c_uint8 * 28),
        ("peer", ctypes.c_uint8 * 28),
        ("send_queue", ctypes.c_void_p),
        ("receive_queue", ctypes.c_void_p),
    )


@cache
def library() -> ctypes.CDLL:
    """The library made of core.c. TestbedError: no compiler, it failed, or what came out cannot be used."""
    path = compiled.compiled(SOURCE, "migrate-core", _FLAGS, compiled.folders(SOURCE))
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise TestbedError(f"{path.name} cannot be loaded: {error}") from error
    if found.migrate_row_size() != ctypes.sizeof(_Row):
        raise TestbedError("core.c lays out its rows in another way than native.py")
    plain = []
    for family in (socket.AF_INET, socket.AF_INET6):
        rows = [_Setting(level, option, value) for (level, option), value in options.defaults(family).items()]
        plain.append(_Settings(len(rows), (_Setting * _MOST_SETTINGS)(*rows)))
    found.migrate_start(ctypes.byref(plain[0]), ctypes.byref(plain[1]))
    return found


def core() -> Core:
    """The best that this machine can have."""
    try:
        library()
    except TestbedError:
        return PlainSockets
    return NativeSockets


class NativeSockets:
    """The same as the reference, for a batch in one call, in which other threads run."""

    def __init__(self, old: Sequence[socket.socket]) -> None:
        self._library = library()
        self._count = len(old)
        self._old = list(old)
        self._rows: Any = (_Row * self._count)()
        for row, connection in zip(self._rows, old, strict=True):
            row.old, row.made, row.family = connection.fileno(), -1, connection.family
        self._places = list(range(self._count))

    def check(self, places: Sequence[int]) -> Failed:
        return self._each(self._library.migrate_check, places)

    def dump(self, places: Sequence[int]) -> Failed:
        return self._each(self._library.migrate_dump, places)

    def refresh(self, places: Sequence[int]) -> Failed:
        return self._each(self._library.migrate_refresh, places)

    def restore(self, places: Sequence[int]) -> Failed:
        return self._each(self._library.migrate_restore, places)

    def thaw(self, places: Sequence[int]) -> Failed:
        return self._each(self._library.migrate_thaw, places)

    def retire(self, places: Sequence[int]) -> None:
        self._each(self._library.migrate_retire, places)

    def made(self, place: int) -> int:
        made: int = self._rows[place].made
        return made

    def unmake(self, place: int) -> None:
        row = self._rows[place]
        if row.made >= 0:
            made, row.made = row.made, -1
            tcp.retire(socket.socket(fileno=made))

    def quiet(self, place: int) -> bool:
        row = self._rows[place]
        return not row.send_length and row.state not in FIN_RECEIVED

    def size(self, place: int) -> int:
        row = self._rows[place]
        size: int = row.send_length + row.receive_length
        return size

    def state(self, place: int) -> TcpState:
        row = self._rows[place]
        linger = bytes(row.linger)
        return TcpState(
            family=row.family,
            state=row.state,
            local=_name(row.family, bytes(row.local)),
            peer=_name(row.family, bytes(row.peer)),
            send_seq=row.send_seq,
            receive_seq=row.receive_seq,
            send_queue=ctypes.string_at(row.send_queue, row.send_length),
            unsent=row.unsent,
            receive_queue=ctypes.string_at(row.receive_queue, row.receive_length),
            window=tuple(row.window),
            mss=row.mss,
            send_scale=row.send_scale,
            receive_scale=row.receive_scale,
            agreed=row.agreed,
            timestamp=row.timestamp,
            send_buffer=row.send_buffer,
            receive_buffer=row.receive_buffer,
            fixed_buffers=row.fixed_buffers,
            settings=tuple((one.level, one.option, one.value) for one in row.settings.of[: row.settings.count]),
            linger=linger if row.linger[0] else b"",
            congestion=row.congestion,
        )

    def close(self) -> None:
        self._library.migrate_release(self._rows, self._count)
        for row in self._rows:
            if row.made >= 0:
                os.close(row.made)
                row.made = -1

    def _each(self, function: Any, places: Sequence[int]) -> Failed:
        if list(places) != self._places:
            self._places = list(places)
            wanted = set(places)
            for place, row in enumerate(self._rows):
                row.skip = place not in wanted
        if not function(self._rows, self._count):
            return {}
        return {place: _reason(row) for place in places if (row := self._rows[place]).error}


def _reason(row: Any) -> str:
    if row.error < 0:
        return refusal(row.error, row.detail).what
    return str(OSError(row.error, os.strerror(row.error)))


def _name(family: int, raw: bytes) -> tuple[Any, ...]:
    """The address in a ``struct sockaddr_in`` or ``sockaddr_in6``, as Python's sockets say it."""
    port = int.from_bytes(raw[2:4], "big")
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8]), port
    flow, scope = int.from_bytes(raw[4:8], "big"), int.from_bytes(raw[24:28], sys.byteorder)
    return socket.inet_ntop(family, raw[8:24]), port, flow, scope


if __name__ == "__main__":
    print("connections are moved by", "the slower core in Python" if core() is PlainSockets else library()._name)
