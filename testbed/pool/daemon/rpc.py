"""Questions and answers between the programs of a pool: one JSON object a line, over TCP."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from testbed.errors import TestbedError

LARGEST = 1 << 20
"""Bytes of a line."""
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Lost(TestbedError):
    """No answer; what was asked for may have been done or not, or may yet be."""


class Client:
    """A way to a server, which is connected again when it was lost. For several threads, one call at a time."""

    def __init__(self, connect: Callable[[float], socket.socket], what: str, timeout: float) -> None:
        """``connect`` is given the time-out, in seconds; ``what`` is for messages."""
        self._connect, self._what, self._timeout = connect, what, timeout
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    @classmethod
    def to(cls, address: str, port: int, what: str, timeout: float) -> Client:
        """A client in this process' own namespace."""
        return cls(lambda patience: socket.create_connection((address, port), patience), what, timeout)

    def call(self, request: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """The answer. Raises ``Lost`` if there is none in time; TestbedError if it is that the request was wrong."""
        with self._lock:
            try:
                if self._socket is None:
                    self._socket = self._connect(self._timeout)
                self._socket.settimeout(timeout or self._timeout)
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = json.loads(_line(self._socket))
            except (OSError, ValueError) as error:
                self._drop()
                raise Lost(f"{self._what} does not answer: {error}") from error
        if "error" in answer:
            raise TestbedError(f"{self._what}: {answer['error']}")
        return dict(answer)

    def close(self) -> None:
        """Close the connection. It is made again when it is needed."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def serve(address: str, port: int, answer: Answer) -> None:
    """Answer for ever, each client in a thread of its own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family, backlog=64) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_converse, args=(connection, answer), daemon=True).start()


def _converse(connection: socket.socket, answer: Answer) -> None:
    with connection, contextlib.suppress(OSError):
        while line := _line(connection):
            try:
                said = answer(json.loads(line))
            except Exception as error:  # a wrong question, or a failure, is an answer too
                said = {"error": str(error) or repr(error)}
            connection.sendall(json.dumps(said).encode() + b"\n")


def _line(connection: socket.socket) -> bytes:
    """The next line; empty when the other side has closed. One question is under way at a time, so no rest is kept."""
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(65536)
        if not piece or len(data) > LARGEST:
            if data:
                raise ValueError("the line is not whole")
            return b""
        data += piece
    return data
