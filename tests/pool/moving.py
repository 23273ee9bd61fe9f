"""Servers between which the tests of moves move connections, shared by their files; and what a move must give."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from bench.pool_world import CLIENT, PoolWorld
from testbed.net import namespace
from testbed.pool.lab.dispatch import Dispatcher, Mode, MoveResult

__all__ = ["CLIENT", "LIMIT", "PoolWorld", "fetch", "rotate", "whole"]
LIMIT = 20.0


def rotate(dispatcher: Dispatcher, mode: Mode = "migrate", limit: float = LIMIT) -> MoveResult:
    """The other server takes over."""
    old = dispatcher.serving
    assert old is not None
    new = "web2" if old == "web1" else "web1"
    assert dispatcher.assign(dispatcher.epoch + 1, new)
    return dispatcher.move(old, new, mode, limit)


def whole(result: dict[str, Any]) -> None:
    """Nothing was lost and nothing was wrong."""
    assert (result["errors"], result["wrong"]) == ([], [])


def fetch(world: PoolWorld, request: bytes, after: Callable[[], None], *, close: bool) -> bytes:
    """What comes to a client that reads nothing before ``after``; ``close``: it says first that it sends no more."""
    connection = namespace.inside(
        world.lab.namespace(CLIENT), lambda: socket.create_connection((world.address, 80), LIMIT)
    )
    with connection:
        connection.sendall(request)
        if close:
            connection.shutdown(socket.SHUT_WR)
        connection.recv(1, socket.MSG_PEEK)
        after()
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
