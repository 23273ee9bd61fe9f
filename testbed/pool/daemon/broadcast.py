"""Messages between agents as UDP broadcasts on the management network."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable

from testbed.plan.types import Interface
from testbed.pool.agents.transport import Kind, Message
from testbed.pool.lab.layout import BROADCAST_PORT

ALL_NODES = "ff02::1"
"""IPv6 has no broadcast; all nodes of a link have this address (RFC 4291)."""


class Broadcast:
    """One agent's way to the others."""

    def __init__(self, pool: str, address: Interface, interface: str, receive: Callable[[Message], None]) -> None:
        """``receive`` is called in a thread of its own for what others say; a message that makes no sense is no
        message. ``interface``: the kernel's name of the one that the network is on."""
        self._pool, self._receive = pool, receive
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._to: tuple[str, int] | tuple[str, int, int, int]
        if address.version == 4:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self._to = (str(address.network.broadcast_address), BROADCAST_PORT)
        else:
            self._to = (ALL_NODES, BROADCAST_PORT, 0, socket.if_nametoindex(interface))
        self._socket.bind(("", BROADCAST_PORT))
        threading.Thread(target=self._listen, name="pool messages", daemon=True).start()

    def broadcast(self, message: Message) -> None:
        """See ``Transport``."""
        words = [self._pool, message.kind.value, message.sender, message.epoch, message.server]
        with contextlib.suppress(OSError):  # such as a link that is down: a message that is lost
            self._socket.sendto(json.dumps(words).encode(), self._to)

    def _listen(self) -> None:
        while True:
            data = self._socket.recv(65536)
            try:
                pool, kind, sender, epoch, server = json.loads(data)
                message = Message(Kind(kind), str(sender), int(epoch), str(server))
            except (ValueError, TypeError):
                continue
            if pool == self._pool:
                self._receive(message)
