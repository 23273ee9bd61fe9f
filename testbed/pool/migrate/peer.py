"""A server's control socket: connections are given up, held and taken on over it, with the state of their requests.

The server listens on a unix socket (SEQPACKET) in its node's folder and needs no privileges; this side belongs to the
lab. Each request is one message of JSON, each answer too; descriptors travel beside them (``SCM_RIGHTS``).

=======  ==================================  ============================================================
``op``   with                                 answer
=======  ==================================  ============================================================
give     ``most``, ``but`` (client ends)     ``conns``: states, and their descriptors; the server lets go
hold     ``conns`` and descriptors           ``held``: a reason for each that it does not take, else null
run      ``most`` unused                     ``running``: how many of the held it serves now
drop                                         forgets what it holds
=======  ==================================  ============================================================
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.runtime.base import UNPRIVILEGED_ID

MOST = 120
"""Connections in one message; each has up to two descriptors, and 253 go into one."""
_DESCRIPTORS = 253  # SCM_MAX_FD
_LARGEST = 1 << 18
_CREDENTIALS = struct.Struct("=3i")


Answer = tuple[dict[str, Any], list[int]]
"""And descriptors beside it."""


class PeerError(TestbedError):
    """A server that does not answer, or not as it should."""


@dataclass(slots=True)
class Given:
    """A connection that a server has let go: its socket, and what the server knew of it."""

    connection: socket.socket
    files: list[int]
    """Further descriptors of its request, such as a half-written upload."""
    request: dict[str, Any]

    def close_files(self) -> None:
        """Close the further descriptors."""
        for fd in self.files:
            os.close(fd)
        self.files = []


class Peer:
    """One server's control socket, connected. PeerError if there is none, or somebody else listens on it."""

    def __init__(self, server: str, path: Path, namespace: Path, *, user: int = UNPRIVILEGED_ID, timeout: float = 5.0):
        self.server = server
        self._asked = False
        self._kept: Answer | None = None
        self._silent = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.settimeout(timeout)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LARGEST)
            self._socket.connect(str(path))
            _check_peer(self._socket, namespace, user)
        except OSError as error:
            self._socket.close()
            raise PeerError(f"its control socket cannot be reached: {error}", where=f"server {server}") from error
        except PeerError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, most: int = MOST, but: Sequence[tuple[Any, ...]] = ()) -> None:
        """Have the server choose the connections that the next ``give`` gets, meanwhile."""
        self._send({"op": "give", "most": min(most, MOST), "but": [list(end[:2]) for end in but]}, ())
        self._asked = True

    def give(self, most: int = MOST, but: Sequence[tuple[Any, ...]] = ()) -> list[Given]:
        """Take up to ``most`` connections from the server, but those with these client ends; or what it was asked
        for."""
        if not self._asked and self._kept is None:
            self.ask(most, but)
        answer, fds = self._given()
        self._kept = None
        given: list[Given] = []
        try:
            for request in answer["conns"]:
                count = int(request.pop("fds"))
                mine, fds = fds[:count], fds[count:]
                if not 1 <= len(mine) == count:
                    raise ValueError(f"{count} descriptors were announced")
                given.append(Given(socket.socket(fileno=mine[0]), mine[1:], request))
            if fds:
                raise ValueError(f"{len(fds)} descriptors belong to nothing")
        except (KeyError, TypeError, ValueError, OSError, AttributeError) as error:
            for item in given:
                item.connection.close()
                item.close_files()
            for fd in fds:
                os.close(fd)
            raise PeerError(f"its answer makes no sense: {error!r}", where=f"server {self.server}") from error
        return given

    def hold(self, items: Sequence[tuple[int, Given]]) -> list[str | None]:
        """Hand connections over that the server is not to touch yet, each as a descriptor, which may be another than
        the given one; a reason for each that it does not take."""
        fds = [fd for connection, item in items for fd in (connection, *item.files)]
        conns = [{**item.request, "fds": 1 + len(item.files)} for _, item in items]
        answer, _ = self._ask({"op": "hold", "conns": conns}, fds)
        held = answer.get("held")
        if not isinstance(held, list) or len(held) != len(items):
            raise PeerError(f"its answer makes no sense: {held!r}", where=f"server {self.server}")
        return [None if reason is None else str(reason) for reason in held]

    def run(self) -> None:
        """Let the server go on with all that it holds."""
        self._ask({"op": "run"}, ())

    def drop(self) -> None:
        """Make the server forget what it holds."""
        self._ask({"op": "drop"}, ())

    def put_back(self) -> None:
        """Let the server go on with the connections that it was asked for and nobody has taken."""
        if not self._asked and self._kept is None:
            return
        given = self.give()
        try:
            if given:
                self.hold([(item.connection.fileno(), item) for item in given])
                self.run()
        finally:
            for item in given:
                item.connection.close()
                item.close_files()

    def _given(self) -> Answer:
        """The answer to ``ask``; it comes before those to all requests made since."""
        if self._kept is None:
            self._asked = False
            self._kept = self._receive("give")
        return self._kept

    def _ask(self, request: dict[str, Any], fds: Sequence[int]) -> Answer:
        self._send(request, fds)
        if self._asked:
            self._given()
        return self._receive(request["op"])

    def _send(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        if self._silent:  # it is not waited for twice
            raise PeerError(f"it does not answer, and was not told to {request['op']}", where=f"server {self.server}")
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([json.dumps(request).encode()], ancillary)
        except OSError as error:
            raise PeerError(f"{request['op']!r} cannot be said: {error}", where=f"server {self.server}") from error

    def _receive(self, doing: str) -> Answer:
        try:
            data, received, flags, _ = socket.recv_fds(self._socket, _LARGEST, _DESCRIPTORS)
        except OSError as error:
            self._silent = True
            self._socket.close()  # so that it drops what it holds, and goes on with what it would have given
            raise PeerError(f"{doing!r} was not answered: {error}", where=f"server {self.server}") from error
        try:
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                raise ValueError("it was cut off")
            answer = json.loads(data) if data else None
            if not isinstance(answer, dict) or "error" in answer:
                raise ValueError(str(answer["error"]) if answer else "it was empty")
        except ValueError as error:
            for fd in received:
                os.close(fd)
            raise PeerError(f"{doing!r} was answered badly: {error}", where=f"server {self.server}") from error
        return answer, list(received)


def _check_peer(connection: socket.socket, namespace: Path, user: int) -> None:
    """The socket stands in a folder that the server's own user may change, so what listens there is looked at."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != user:
        raise PeerError(f"user {uid} listens on its control socket, not user {user}")
    try:
        same = os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), os.stat(namespace))
    except OSError as error:
        raise PeerError(f"process {pid}, which listens on its control socket, cannot be seen: {error}") from error
    if not same:
        raise PeerError(f"process {pid} listens on its control socket from outside of the server's namespace")
