"""A unix socket that answers one JSON object a line with one JSON object a line. Nothing that a client sends, or leaves
unread, does more than end that client's connection."""

from __future__ import annotations

import json
import os
import selectors
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError

LONGEST_LINE = 256 * 1024
MOST_UNSENT = 8 << 20
MOST_CLIENTS = 64

Handler = Callable[[dict[str, Any]], Any]


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = bytearray()
        self.unsent = bytearray()
        self.closing = False


class Service:
    """Registered with the owner's selector; each key's ``data`` is a function to call when it is ready."""

    def __init__(self, path: Path, handle: Handler, selector: selectors.BaseSelector) -> None:
        self._handle = handle
        self._selector = selector
        self._clients: dict[int, _Client] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            with address_of(path) as address:
                self._listener.bind(address)
        finally:
            os.umask(mask)
        self._listener.listen(16)
        selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._clients) >= MOST_CLIENTS:
            connection.close()
            return
        connection.setblocking(False)
        client = _Client(connection)
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._serve(client, mask))

    def _serve(self, client: _Client, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                self._read(client)
            self._write(client)
        except (OSError, EOFError):
            self._close(client)

    def _read(self, client: _Client) -> None:
        data = client.connection.recv(65536)
        if not data:
            raise EOFError
        client.received += data
        while not client.closing and (end := client.received.find(b"\n")) >= 0:
            line = bytes(client.received[:end])
            del client.received[: end + 1]
            client.unsent += json.dumps(self._answer(client, line)).encode() + b"\n"
        if len(client.received) > LONGEST_LINE or len(client.unsent) > MOST_UNSENT:
            raise EOFError

    def _answer(self, client: _Client, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            client.closing = True
            return {"error": "not a JSON object", "remedy": ""}
        try:
            return {"ok": self._handle(request)}
        except TestbedError as error:
            return {"error": error.what, "remedy": error.remedy}
        except Exception as error:
            traceback.print_exc()
            return {"error": f"the request failed: {error!r}", "remedy": ""}

    def _write(self, client: _Client) -> None:
        if client.unsent:
            with suppress(BlockingIOError):
                del client.unsent[: client.connection.send(client.unsent)]
        if client.closing and not client.unsent:
            raise EOFError
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        self._selector.modify(client.connection, events, lambda mask: self._serve(client, mask))

    def _close(self, client: _Client) -> None:
        self._selector.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """An address for a unix socket whose path may be longer than the 107 bytes that fit: by way of its folder."""
    folder = os.open(path.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
