"""An HTTP/1.1 server of files: GET and HEAD, PUT of uploads; keep-alive, pipelining. One thread, no privileges."""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from .connection import Connection
from .content import Content, Uploads
from .messages import REASONS, Request, read_request, response_head

HEAD_LIMIT = 16 * 1024
UPLOAD_LIMIT = 1 << 30
PIECE = 1 << 18
SIOCOUTQ, SO_MAX_PACING_RATE = 0x5411, 47
TICK = 0.02
TYPES = {".html": "text/html; charset=utf-8", ".txt": "text/plain; charset=utf-8"}


class FileServer:
    """Serves until its process ends."""

    def __init__(
        self,
        name: str,
        root: Path,
        listen: Sequence[str],
        uploads: Path | None = None,
        log: Path | None = None,
        rate: int = 0,
    ) -> None:
        self.name = name
        self.rate = rate
        self.content = Content(root)
        self.uploads = None if uploads is None else Uploads(uploads)
        self.poll = selectors.EpollSelector()
        self.log = log.open("a", buffering=1, encoding="utf-8") if log else None
        self.connections: set[Connection] = set()
        self.busy: set[Connection] = set()  # those whose upload is complete and to be stored
        self.ending: set[Connection] = set()  # those whose last bytes are not acknowledged
        for text in listen:
            host, _, port = text.rpartition(":")
            listener = socket.create_server(
                (host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=4096
            )
            listener.setblocking(False)
            self.poll.register(listener, selectors.EVENT_READ, self.accept)

    def run(self) -> None:
        """Serve for ever."""
        while True:
            timeout = 0 if self.busy else TICK if self.ending else None
            for key, events in self.poll.select(timeout):
                if not callable(key.data):
                    self.step(key.data, events)
                else:
                    key.data(key.fileobj)
            for connection in list(self.busy):
                self.store(connection)
            for connection in list(self.ending):
                self.end_quietly(connection)

    def accept(self, listener: socket.socket) -> None:
        """Take what waits."""
        for _ in range(64):
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            if self.rate:
                sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, self.rate)
            connection = Connection(sock)
            self.connections.add(connection)
            self.watch(connection)

    def watch(self, connection: Connection) -> None:
        """Wait for what the connection can do next."""
        wanted = 0
        if connection.phase in ("read", "upload", "closing") and not connection.eof:
            wanted |= selectors.EVENT_READ
        if connection.out or connection.phase == "send":
            wanted |= selectors.EVENT_WRITE
        if wanted == connection.registered:
            return
        if not connection.registered:
            self.poll.register(connection.sock, wanted, connection)
        elif wanted:
            self.poll.modify(connection.sock, wanted, connection)
        else:
            self.poll.unregister(connection.sock)
        connection.registered = wanted

    def step(self, connection: Connection, events: int) -> None:
        """Go on with a connection; an error on it ends it."""
        try:
            if events & selectors.EVENT_READ:
                self.receive(connection)
            if connection in self.connections:
                self.advance(connection)
        except OSError:
            self.forget(connection)

    def receive(self, connection: Connection) -> None:
        """Read what has come."""
        try:
            data = connection.sock.recv(65536 if connection.phase == "upload" else 8192)
        except BlockingIOError:
            return
        connection.eof = not data
        if connection.phase != "closing":
            connection.inbuf += data

    def advance(self, connection: Connection) -> None:
        """Do whatever can be done at once."""
        while connection in self.connections:
            before = connection.phase
            if connection.out:
                try:
                    del connection.out[: connection.sock.send(connection.out)]
                except BlockingIOError:
                    break
            if connection.phase == "send" and not connection.out and not self.send(connection):
                break
            if connection.phase == "read":
                self.parse(connection)
            if connection.phase == "upload":
                self.write_upload(connection)
            if connection.phase == "closing" and connection.eof:
                self.end(connection)
                return
            if connection.phase == before and connection.phase != "send":
                break
        if connection in self.connections:
            self.watch(connection)

    def send(self, connection: Connection) -> bool:
        """Send a piece of the file; whether there may be more to do now."""
        if connection.offset < connection.end:
            length = min(PIECE, connection.end - connection.offset)
            try:
                sent = os.sendfile(connection.sock.fileno(), connection.file, connection.offset, length)
            except BlockingIOError:
                return False
            if not sent:
                raise OSError("the file has become shorter")
            connection.offset += sent
            if connection.offset < connection.end:
                return False  # others have their turn; this one is writable again at once if there is room
        connection.close_files()
        self.done(connection)
        return True

    def done(self, connection: Connection) -> None:
        """A response is complete."""
        if connection.keep:
            connection.phase = "read"
        else:
            connection.sock.shutdown(socket.SHUT_WR)
            connection.phase = "closing"

    def parse(self, connection: Connection) -> None:
        """Begin with the next request, if all of its head is there."""
        head, found, rest = connection.inbuf.partition(b"\r\n\r\n")
        if not found:
            if len(connection.inbuf) > HEAD_LIMIT:
                self.answer(connection, 431, keep=False)
            elif connection.eof:
                connection.keep = False
                if connection.out:
                    connection.phase = "send"
                else:
                    self.done(connection)
            return None
        connection.inbuf = bytearray(rest)
        try:
            request = read_request(head)
        except ValueError:
            return self.answer(connection, 400, keep=False)
        connection.keep = request.keep
        self.note(connection, request)
        if request.method in ("GET", "HEAD"):
            return self.get(connection, request.path, body=request.method == "GET")
        if request.method in ("PUT", "POST") and self.uploads is not None:
            return self.put(connection, request.path, request.fields)
        return self.answer(connection, 405, keep=False)

    def get(self, connection: Connection, path: str, *, body: bool) -> None:
        """Begin to send a file."""
        name = path.lstrip("/") or "index.html"
        try:
            fd, facts = self.content.open(name)
        except OSError:
            return self.answer(connection, 404)
        connection.path, connection.etag = name, self.content.etag(name, facts)
        kind = TYPES.get(os.path.splitext(name)[1], "application/octet-stream")
        extra = f'ETag: "{connection.etag}"\r\nContent-Type: {kind}\r\n'
        connection.out += self.head(connection, 200, facts.st_size, extra)
        connection.phase = "send"
        connection.file, connection.offset, connection.end = fd, 0, facts.st_size if body else 0
        return None

    def put(self, connection: Connection, path: str, fields: dict[str, str]) -> None:
        """Begin to receive a file."""
        assert self.uploads is not None
        name, length = os.path.basename(path), fields.get("content-length", "")
        if not length.isdecimal():
            return self.answer(connection, 411, keep=False)
        if int(length) > UPLOAD_LIMIT:
            return self.answer(connection, 413, keep=False)
        if name in ("", ".", "..") or "\0" in name:
            return self.answer(connection, 400, keep=False)
        connection.upload = self.uploads.begin()
        connection.name, connection.left, connection.phase = name, int(length), "upload"
        if fields.get("expect", "").lower() == "100-continue":
            connection.out += b"HTTP/1.1 100 Continue\r\n\r\n"
        return None

    def write_upload(self, connection: Connection) -> None:
        """Store what has come of an upload."""
        if piece := connection.inbuf[: connection.left]:
            written = os.write(connection.upload, piece)
            del connection.inbuf[:written]
            connection.left -= written
        if not connection.left:
            connection.phase = "store"
            self.busy.add(connection)
            os.lseek(connection.upload, 0, os.SEEK_SET)
        elif connection.eof:
            self.forget(connection)

    def store(self, connection: Connection) -> None:
        """Give a complete upload its name and say what has come; all at once, so uploads should be small."""
        self.busy.discard(connection)
        assert self.uploads is not None
        try:
            size, digest = self.uploads.keep(connection.upload, connection.name)
            connection.close_files()
            body = json.dumps({"bytes": size, "sha256": digest}).encode() + b"\n"
            connection.out += self.head(connection, 201, len(body), "Content-Type: application/json\r\n") + body
            self.respond(connection)
            self.advance(connection)
        except OSError:
            self.forget(connection)

    def answer(self, connection: Connection, status: int, *, keep: bool | None = None) -> None:
        """A response without a file."""
        if keep is not None:
            connection.keep = keep
        body = f"{status} {REASONS[status]}\n".encode()
        connection.out += self.head(connection, status, len(body), "Content-Type: text/plain\r\n") + body
        self.respond(connection)

    def respond(self, connection: Connection) -> None:
        """What is in the buffer is all of a response."""
        connection.path, connection.offset, connection.end = "", 0, 0
        connection.phase = "send"

    def head(self, connection: Connection, status: int, length: int, extra: str) -> bytes:
        """The head of a response."""
        return response_head(self.name, status, length, extra, keep=connection.keep)

    def note(self, connection: Connection, request: Request) -> None:
        """Log a request: monotonic time, client, what for."""
        if self.log is not None:
            host, port = connection.sock.getpeername()[:2]
            entry = {"t": time.monotonic(), "client": host, "port": port}
            entry |= {"method": request.method, "path": request.path}
            self.log.write(json.dumps(entry) + "\n")

    def end(self, connection: Connection) -> None:
        """Both directions are closed; the socket stays until the client has acknowledged everything."""
        connection.phase = "ending"
        if connection.registered:
            self.poll.unregister(connection.sock)
            connection.registered = 0
        self.ending.add(connection)
        self.end_quietly(connection)

    def end_quietly(self, connection: Connection) -> None:
        """Forget a connection that has nothing more to send, or is over."""
        try:
            waiting = struct.unpack("=i", fcntl.ioctl(connection.sock, SIOCOUTQ, b"\0" * 4))[0]
            over = connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7
        except OSError:
            waiting, over = 0, True
        if over or not waiting:
            self.forget(connection)

    def leave(self, connection: Connection) -> None:
        """Have nothing to do with a connection any more."""
        if connection.registered:
            self.poll.unregister(connection.sock)
            connection.registered = 0
        for group in (self.connections, self.busy, self.ending):
            group.discard(connection)

    def forget(self, connection: Connection) -> None:
        """End a connection."""
        self.leave(connection)
        connection.close()
