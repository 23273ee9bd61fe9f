"""Helper program: stands between the clients of a TCP server and the server, and is slow or answers itself.

Its job: port (to listen on), mark (of its own connections), delay (seconds that what clients say is held back), status
(of answers of its own; 0: none), share (of connections that it answers), seed. On SIGTERM it lets connections end.
Standard library only, so that it starts quickly.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import struct
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import Any

_SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h, also for IPv6
_IN6 = struct.Struct("!HHI16sI")
_SO_MARK = 36
_PIECE = 1 << 16
_LAST_SECONDS = 2.0
_LONGEST_HEAD = 1 << 16


class Proxy:
    """All its connections."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._random = random.Random(job["seed"])
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until SIGTERM, and for a moment longer while connections last."""
        ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        servers = [await asyncio.start_server(self._accept, sock=sock) for sock in _listeners(self._job["port"])]
        await ending.wait()
        for server in servers:
            server.close()
        if self._open:
            await asyncio.wait(self._open, timeout=_LAST_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if self._job["status"] and self._random.random() < self._job["share"]:
                await self._answer(reader, writer)
            else:
                await self._pass_on(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # one of the two ends is gone
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = HTTPStatus(self._job["status"])
        body = f"{status.value} {status.phrase}\n".encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.write_eof()
        await asyncio.wait_for(_discard(reader), _LAST_SECONDS)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target, family = _original(writer.get_extra_info("socket"))
        if target[1] == self._job["port"]:
            return  # not redirected: somebody looks whether we listen
        server = socket.socket(family, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, _SO_MARK, self._job["mark"])
        server.setblocking(False)
        await asyncio.get_running_loop().sock_connect(server, target)
        answers, requests = await asyncio.open_connection(sock=server)
        try:
            await asyncio.gather(
                _copy(reader, requests, self._job["delay"]),
                _copy(answers, writer, 0),
            )
        finally:
            requests.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what is read, each piece ``delay`` seconds after it came."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def read() -> None:
        piece = b"?"
        while piece:
            try:
                piece = await reader.read(_PIECE)
            except OSError:
                piece = b""
            await waiting.put((loop.time() + delay, piece))

    reading = asyncio.create_task(read())
    try:
        while True:
            due, piece = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()
    finally:
        reading.cancel()


async def _discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(_PIECE):
        pass


def _original(sock: socket.socket) -> tuple[tuple[str, int], socket.AddressFamily]:
    """Where the client wanted to go before it was redirected to us."""
    if sock.family == socket.AF_INET:
        _, port, address = struct.unpack_from("!HH4s", sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16))
        return (socket.inet_ntop(socket.AF_INET, address), port), socket.AF_INET
    _, port, _, address, _ = _IN6.unpack(sock.getsockopt(socket.IPPROTO_IPV6, _SO_ORIGINAL_DST, _IN6.size))
    return (socket.inet_ntop(socket.AF_INET6, address), port), socket.AF_INET6


def _listeners(port: int) -> list[socket.socket]:
    found = [socket.create_server(("0.0.0.0", port), backlog=1024)]  # noqa: S104 - in a node's own network
    with suppress(OSError):  # a node without IPv6
        found.append(socket.create_server(("::", port), family=socket.AF_INET6, backlog=1024))
    return found


if __name__ == "__main__":
    asyncio.run(Proxy(json.load(sys.stdin)).run())
