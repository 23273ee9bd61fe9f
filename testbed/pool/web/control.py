"""The control socket: giving connections away in the middle of a request, and taking others on.

The other side is ``testbed.pool.migrate.peer``. What another server says of a connection is checked like what a
client says; a response goes on only from the same content, so that no client gets half of one file and half of
another.
"""

from __future__ import annotations

import array
import json
import os
import selectors
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .connection import Connection

if TYPE_CHECKING:
    from .server import FileServer

MOST_BYTES = 1 << 17
"""Of states in one message, more or less."""


class Control:
    """Listens on ``path``, where only the lab's root may connect."""

    def __init__(self, server: FileServer, path: Path) -> None:
        self._server = server
        self._held: list[Connection] = []
        fresh = path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        previous = os.umask(0o177)
        self._listener.bind(str(fresh))
        os.umask(previous)
        self._listener.listen(8)
        fresh.replace(path)  # who sees it can connect
        self._listener.setblocking(False)
        server.poll.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        """Let the lab in, and nobody else."""
        client, _ = listener.accept()
        _, uid, _ = struct.unpack("=3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != 0:
            client.close()
            return
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 19)
        self._server.poll.register(client, selectors.EVENT_READ, self._command)

    def _command(self, client: socket.socket) -> None:
        """Do what the lab asks for."""
        fds: list[int] = []
        try:
            data, received, _, _ = socket.recv_fds(client, 1 << 18, 253)
            fds = list(received)
            if data:
                request = json.loads(data)
                getattr(self, "do_" + request["op"])(client, request, fds)
                return
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            for fd in fds:
                os.close(fd)
            try:
                client.sendmsg([json.dumps({"error": repr(error)}).encode()])
                return
            except OSError:
                pass
        self._server.poll.unregister(client)
        client.close()
        self._drop()  # whoever handed them over is gone

    def do_give(self, client: socket.socket, request: dict[str, Any], _: list[int]) -> None:
        """Let go of connections, and send them."""
        but = {(str(host), int(port)) for host, port in request["but"]}
        chosen: list[Connection] = []
        states: list[dict[str, Any]] = []
        size = 0
        for connection in list(self._server.connections):
            try:
                host, port = connection.sock.getpeername()[:2]
            except OSError:  # it has ended; the next event on it will show that
                continue
            if (host.removeprefix("::ffff:"), port) in but:
                continue
            state = connection.state()
            size += len(state.get("inbuf", "")) + len(state.get("out", "")) + 256
            if len(chosen) == request["most"] or size > MOST_BYTES:
                break
            chosen.append(connection)
            states.append(state)
        fds = [fd for item in chosen for fd in (item.sock.fileno(), item.upload) if fd >= 0]
        for connection in chosen:
            self._server.leave(connection)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            client.sendmsg([json.dumps({"conns": states}).encode()], ancillary)
        except OSError:  # nobody is there to take them any more
            for connection in chosen:
                self._go_on(connection)
            raise
        for connection in chosen:
            connection.close()

    def do_hold(self, client: socket.socket, request: dict[str, Any], fds: list[int]) -> None:
        """Look at connections and keep them, without touching them yet."""
        answers: list[str | None] = []
        for state in request["conns"]:
            connection = Connection(socket.socket(fileno=fds.pop(0)))
            if state["fds"] > 1:
                connection.upload = fds.pop(0)
            try:
                self._fit(connection, state)
                self._held.append(connection)
                answers.append(None)
            except (OSError, ValueError, LookupError, TypeError) as error:
                connection.close()
                answers.append(str(error))
        client.sendmsg([json.dumps({"held": answers}).encode()])

    def _fit(self, connection: Connection, state: dict[str, Any]) -> None:
        """Put a connection into the state in which another server left it. ValueError if that cannot be."""
        connection.become(state)
        if connection.phase in ("upload", "store"):
            if self._server.uploads is None or os.path.basename(connection.name) != connection.name:
                raise ValueError("uploads are not taken here")
            if not stat.S_ISREG(os.fstat(connection.upload).st_mode):
                raise ValueError("the upload is no file")
            os.lseek(connection.upload, 0, os.SEEK_END)
        if connection.phase == "send" and connection.path and connection.end:
            fd, facts = self._server.content.open(connection.path)
            connection.file = fd
            if self._server.content.etag(connection.path, facts) != connection.etag:
                raise ValueError(f"{connection.path} has other content here")
            if not 0 <= connection.offset <= connection.end <= facts.st_size:
                raise ValueError(f"{connection.path} is not that long")

    def do_run(self, client: socket.socket, _: dict[str, Any], __: list[int]) -> None:
        """Go on with everything that is held."""
        held, self._held = self._held, []
        client.sendmsg([json.dumps({"running": len(held)}).encode()])
        for connection in held:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Serve it."""
        self._server.connections.add(connection)
        if connection.phase == "store":
            self._server.busy.add(connection)
        elif connection.phase == "ending":
            self._server.ending.add(connection)
        else:
            self._server.step(connection, 0)

    def do_drop(self, client: socket.socket, _: dict[str, Any], __: list[int]) -> None:
        """Forget everything that is held."""
        self._drop()
        client.sendmsg([b'{"dropped": true}'])

    def _drop(self) -> None:
        """Close what is held."""
        for connection in self._held:
            connection.close()
        self._held = []
