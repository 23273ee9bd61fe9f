"""The watch's questions: an echo from a provider's router, an answer from a listener of the redirector. No waiting."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import suppress

from testbed.edge.plan import names
from testbed.edge.plan.world import Network
from testbed.lab.lab import Lab
from testbed.net.namespace import inside

_ECHO, _ECHO_REPLY = 8, 0  # RFC 792
_ANSWER_WITHIN = 0.4
"""Seconds for the redirector to answer; it has nothing to wait for, and takes a millisecond."""
_QUESTION = b"HEAD / HTTP/1.1\r\nHost: watch.invalid\r\nConnection: close\r\n\r\n"


class Echo:
    """The echo socket of one provider."""

    def __init__(self, isp: str, pinger: socket.socket, heard: dict[str, int]) -> None:
        self.isp, self._socket, self._heard = isp, pinger, heard

    def send(self, number: int) -> None:
        """Ask once. What cannot be sent is not answered either."""
        with suppress(OSError):
            self._socket.send(struct.pack("!BBHHH", _ECHO, 0, 0, 0, number) + b"edge")

    def __call__(self) -> None:
        try:
            while data := self._socket.recv(256):
                if data[0] == _ECHO_REPLY:
                    self._heard[self.isp] = struct.unpack_from("!H", data, 6)[0]
        except OSError:
            pass  # nothing more, or an error that an earlier probe has met


class Question:
    """One request to a listener of the redirector. Any answer will do."""

    def __init__(self, lab: Lab, isp: Network, port: int, selector: selectors.BaseSelector) -> None:
        self.answered = False
        self._ended = False
        self._deadline = time.monotonic() + _ANSWER_WITHIN
        self._socket = inside(lab.namespace(names.INNER), _stream_socket)
        self._selector = selector
        self._asked = False
        self._socket.connect_ex((str(isp.listener.ip), port))
        selector.register(self._socket, selectors.EVENT_WRITE, self)

    def __call__(self) -> None:
        try:
            if not self._asked:
                self._socket.send(_QUESTION)
                self._asked = True
                self._selector.modify(self._socket, selectors.EVENT_READ, self)
                return
            self.answered = self._socket.recv(256).startswith(b"HTTP/1.1 ")
        except OSError:
            pass
        self._ended = True
        self._selector.unregister(self._socket)

    def over(self) -> bool:
        """Whether there is an answer, or none in time."""
        return self._ended or time.monotonic() > self._deadline

    def close(self, selector: selectors.BaseSelector) -> None:
        """Give the socket back."""
        if not self._ended:
            selector.unregister(self._socket)
        self._socket.close()


def ping_socket() -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    return opened


def _stream_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
