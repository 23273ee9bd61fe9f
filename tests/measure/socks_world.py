"""A real SOCKS5 proxy on a unix socket behind which hosts answer HTTP in good and bad ways. Runs in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

from testbed.measure.content import content

SIZE = 200_000


class World:
    """``usernames`` and ``hosts`` count what was asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.usernames: Counter[str] = Counter()
        self.hosts: Counter[str] = Counter()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> World:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._live: set[asyncio.Task[None]] = set()
        server = await asyncio.start_unix_server(self._accept, self.path, backlog=1000)
        self._ready.set()
        await self._end.wait()
        server.close()
        for task in self._live:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._live.add(task)
        try:
            await self._session(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._live.discard(task)
            writer.close()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        assert (version, methods) == (5, b"\x02")
        writer.write(b"\x05\x02")
        name_length = (await reader.readexactly(2))[1]
        name = await reader.readexactly(name_length)
        await reader.readexactly((await reader.readexactly(1))[0])
        self.usernames[name.decode()] += 1
        writer.write(b"\x01\x00")
        assert await reader.readexactly(4) == b"\x05\x01\x00\x03"
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        self.hosts[host] += 1
        port = int.from_bytes(await reader.readexactly(2), "big")
        assert port == 80
        kind, _, value = host.partition(".")
        if kind == "refuse":
            writer.write(b"\x05" + bytes([int(value)]) + b"\x00\x01" + bytes(6))
            return
        if kind == "vanish":
            return
        address = {"named": b"\x03\x04host", "v6": b"\x04" + bytes(16)}.get(kind, b"\x01" + bytes(4))
        writer.write(b"\x05\x00\x00" + address + bytes(2))
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /file HTTP/1.0\r\n")
        assert f"Host: {host}\r\n".encode() in request
        await self._answer(kind, value, writer)

    async def _answer(self, kind: str, value: str, writer: asyncio.StreamWriter) -> None:
        body = content(SIZE, seed=3)
        head = f"HTTP/1.1 200 OK\r\nServer: x\r\nx-INSTANCE:  shop2 \r\nContent-Length: {SIZE}\r\n\r\n".encode()
        match kind:
            case "silent":
                await asyncio.sleep(3600)
            case "stall":
                writer.write(head + body[:1000])
                await asyncio.sleep(3600)
            case "status":
                writer.write(f"HTTP/1.1 {value} Whatever\r\nContent-Length: 2\r\n\r\nno".encode())
            case "short":
                writer.write(head + body[:-1])
            case "shorter":
                writer.write(head.replace(str(SIZE).encode(), b"1000") + body[:1000])
            case "long":
                writer.write(head.replace(str(SIZE).encode(), b"%d" % (SIZE + 1)) + body + b"!")
            case "nolength":
                writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
            case "endless":
                writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
                while True:
                    writer.write(body)
                    await writer.drain()
            case "corrupt":
                writer.write(head + body[:-1] + bytes([body[-1] ^ 1]))
            case "mute":
                return
            case "garbage":
                writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
            case "header":
                writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000)
            case "halfhead":
                writer.write(head[:30])
            case "break":
                writer.write(head + body[:1000])
                await writer.drain()
                writer.transport.abort()
            case "trickle":
                for start in range(0, len(head), 7):
                    writer.write(head[start : start + 7])
                    await asyncio.sleep(0)
                writer.write(body)
            case _:
                writer.write(head + body)
        await writer.drain()
