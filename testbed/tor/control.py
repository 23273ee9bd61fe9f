"""Control connections to tor (control-spec): one socket each and no thread, so that a hundred nodes can be polled.

stem reads the messages; connecting, time-outs, reconnecting and errors that name the node are ours.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import stem
import stem.socket

from testbed.errors import TestbedError, WaitTimeout


class ControlError(TestbedError):
    """tor refused a command, or the connection to it broke."""


class _Lines:
    """Lines from a socket; a time-out loses nothing that has been read."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._socket = connection
        self._timeout = timeout
        self._buffer = bytearray()

    def available(self, timeout: float) -> bool:
        """Whether a whole line is there within ``timeout`` seconds; OSError when the other end has closed."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.0))
            try:
                chunk = self._socket.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return False
            if not chunk:
                raise ConnectionResetError("tor closed the connection")
            self._buffer += chunk
        return True

    def readline(self) -> bytes:
        """The next line, as stem wants it; OSError after the time-out of the connection."""
        if not self.available(self._timeout):
            raise TimeoutError(f"no answer within {self._timeout:g} s")
        end = self._buffer.index(b"\n") + 1
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        return line


class Control:
    """One control connection. Not for use by several threads at once.

    A broken connection is made anew by the next command, with the same events subscribed; ``on_gap`` hears of it.
    """

    def __init__(self, node: str, path: Path, *, timeout: float = 20, on_gap: Callable[[str], None] | None = None):
        self.node = node
        self.path = path
        self._timeout = timeout
        self._on_gap = on_gap
        self._events: deque[Any] = deque()
        self._subscribed: tuple[str, ...] = ()
        self._socket: socket.socket | None = None
        self._open()

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; tor goes on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fileno(self) -> int:
        """For selectors; -1 while closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def ask(self, command: str, body: str | None = None) -> Any:
        """Send a command, with ``body`` for those that begin with ``+``, and return tor's reply (stem ControlMessage).

        ControlError when tor refuses it, does not answer in time, or is gone and stays so.
        """
        message = f"{command}\r\n"
        if body is not None:
            lines = (f".{line}" if line.startswith(".") else line for line in body.rstrip("\n").split("\n"))
            message += "\r\n".join(lines) + "\r\n.\r\n"
        try:
            reply = self._exchange(message)
        except TimeoutError as error:
            self.close()
            raise ControlError(f"tor did not answer {_short(command)}: {error}", where=self.node) from error
        except OSError as error:
            self._reopen(str(error))
            try:
                reply = self._exchange(message)
            except OSError as again:
                self.close()
                raise ControlError(f"tor went away during {_short(command)}: {again}", where=self.node) from again
        if not reply.is_ok():
            raise ControlError(f"tor refused {_short(command)}: {reply}", where=self.node)
        return reply

    def getinfo(self, key: str) -> str:
        """The value of one GETINFO key."""
        content = self.ask(f"GETINFO {key}").content()[0][2]
        return str(content).partition("=")[2].removeprefix("\n")

    def setconf(self, **options: str | int) -> None:
        """Change options of the running tor."""
        self.ask("SETCONF " + " ".join(f'{name}="{value}"' for name, value in options.items()))

    def signal(self, name: str) -> None:
        """Send a signal such as ``NEWNYM`` or ``RELOAD`` through the control port."""
        self.ask(f"SIGNAL {name}")

    def subscribe(self, *events: str) -> None:
        """Ask for these kinds of events, and no others, from now on."""
        self.ask(" ".join(("SETEVENTS", *events)))
        self._subscribed = events

    def next_event(self, timeout: float) -> str | None:
        """The next event's text, without its status code, or None after ``timeout`` seconds."""
        if not self._events:
            try:
                if self._socket is None:
                    raise ConnectionResetError("not connected")
                if not self._lines.available(timeout):
                    return None
                self._events.append(self._receive())
            except OSError as error:
                self._reopen(str(error))
                return None
        lines = [line for _, _, line in self._events.popleft().content()]
        if len(lines) > 1 and lines[-1] == "OK":  # closes an event that has data
            del lines[-1]
        return "\n".join(lines)

    def drain(self) -> list[str]:
        """All events that have arrived so far."""
        events = []
        while (event := self.next_event(0)) is not None:
            events.append(event)
        return events

    def _exchange(self, message: str) -> Any:
        if self._socket is None:
            self._open()
        assert self._socket is not None
        self._socket.settimeout(self._timeout)
        self._socket.sendall(message.encode())
        while True:
            reply = self._receive()
            if reply.content()[0][0] != "650":
                return reply
            self._events.append(reply)

    def _receive(self) -> Any:
        try:
            return stem.socket.recv_message(self._lines)
        except stem.SocketClosed as error:
            cause = error.args[0] if error.args else error
            raise (cause if isinstance(cause, OSError) else ConnectionResetError(str(cause))) from error
        except stem.ProtocolError as error:
            raise ControlError(f"tor sent what is no control message: {error}", where=self.node) from error

    def _open(self) -> None:
        connection = self._dial()
        try:
            self._socket, self._lines = connection, _Lines(connection, self._timeout)
            self._authenticate()
        except BaseException:
            connection.close()
            self._socket = None
            raise

    def _dial(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self._timeout)
            connection.connect(str(self.path))
        except BaseException:
            connection.close()
            raise
        return connection

    def _authenticate(self) -> None:
        reply = self._exchange("AUTHENTICATE\r\n")
        if not reply.is_ok():
            raise ControlError(f"tor did not let us in: {reply}", where=self.node)

    def _reopen(self, why: str) -> None:
        self.close()
        try:
            self._open()
            if self._subscribed:
                self.subscribe(*self._subscribed)
        except OSError as error:
            raise ControlError(f"tor is gone ({why}); {self.path}: {error}", where=self.node) from error
        if self._on_gap is not None:
            self._on_gap(why)


def try_connect(node: str, path: Path, **options: Any) -> Control | None:
    """A connection, or None while nobody listens there yet, or listens and does not answer in time."""
    try:
        return Control(node, path, **options)
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, TimeoutError):
        return None


def await_event(control: Control, wanted: Callable[[str], bool], awaited: str, timeout: float) -> str:
    """The first event that is ``wanted``, dropping others; WaitTimeout after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    dropped = 0
    while (left := deadline - time.monotonic()) > 0:
        event = control.next_event(left)
        if event is not None and wanted(event):
            return event
        dropped += event is not None
    raise WaitTimeout(awaited, timeout, f"{dropped} other events", where=control.node)


def await_any(controls: list[Control], timeout: float) -> list[Control]:
    """Those connections that have something to read, as soon as one has, or none after ``timeout`` seconds."""
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        for control in controls:
            if control.fileno() >= 0:
                selector.register(control.fileno(), selectors.EVENT_READ, control)
        return [key.data for key, _ in selector.select(timeout)]


def _short(command: str) -> str:
    first = command.split("\r\n", 1)[0]
    return repr(first if len(first) <= 100 else first[:97] + "...")
