"""A client's connection, and where it is in its request."""

from __future__ import annotations

import base64
import os
import socket
from typing import Any

PHASES = ("read", "send", "upload", "store", "closing", "ending")
"""A request's head is read, a response sent; a file received and stored; the end said, and waited for."""
FRESH: dict[str, Any] = {
    "phase": "read",
    "path": "",
    "etag": "",
    "offset": 0,
    "end": 0,
    "name": "",
    "left": 0,
    "keep": True,
    "eof": False,
}
"""What a connection knows that has just been accepted; but for its buffers and files."""
BUFFERS = ("inbuf", "out")


class Connection:
    """A client's connection and where it is in its request."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.phase = "read"  # then "send", "upload", "store" and again "read"; at last "closing" and "ending"
        self.inbuf = bytearray()
        self.out = bytearray()
        self.file = -1  # the file that is sent, and from where to where
        self.path, self.etag = "", ""
        self.offset = self.end = 0
        self.upload = -1  # the file that is written, and how many bytes are to come
        self.name = ""
        self.left = 0
        self.keep = True
        self.eof = False
        self.held = False
        self.registered = 0

    def state(self) -> dict[str, Any]:
        """What another server must know to go on: what is not as in a connection that has just been accepted."""
        state = {key: value for key, fresh in FRESH.items() if (value := getattr(self, key)) != fresh}
        for key in BUFFERS:
            if buffer := getattr(self, key):
                state[key] = base64.b64encode(buffer).decode()
        state["fds"] = 1 if self.upload < 0 else 2
        return state

    def become(self, state: dict[str, Any]) -> None:
        """Take on a state. ValueError, TypeError if it makes no sense."""
        for key, value in state.items():
            if key in BUFFERS:
                setattr(self, key, bytearray(base64.b64decode(value)))
            elif key in FRESH:
                setattr(self, key, type(FRESH[key])(value))
        if self.phase not in PHASES:
            raise ValueError(f"there is no phase {self.phase!r}")

    def close(self) -> None:
        """Close all of it."""
        self.sock.close()
        self.close_files()

    def close_files(self) -> None:
        """Close the files of the request."""
        for fd in (self.file, self.upload):
            if fd >= 0:
                os.close(fd)
        self.file = self.upload = -1
