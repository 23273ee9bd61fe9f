"""One question of an availability timeline: by ping, by a TCP connection, by an HTTP request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from testbed.measure.probes import http, ping
from testbed.measure.probes.base import locate, locate_port

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Kind = Literal["ping", "tcp", "http"]
Ask = Callable[[int], Awaitable[str]]
"""Asks once, with a number that no other question has; the outcome, ``ok`` for a good one. May raise OSError."""
Maker = Callable[[], contextlib.AbstractAsyncContextManager[Ask]]
"""Opens what all questions share, in the thread that asks, which is inside the node."""


def kind_of(target: str) -> Kind:
    """How a target is asked unless said otherwise."""
    if "://" in target:
        return "http"
    return "tcp" if target.startswith("[") or target.count(":") == 1 else "ping"


def _ping(lab: Lab, source: str, target: str) -> Maker:
    place = locate(lab, target)

    @contextlib.asynccontextmanager
    async def make() -> AsyncIterator[Ask]:
        waiting: dict[int, asyncio.Future[None]] = {}
        with ping.open_socket(lab, source, place) as opened:
            pinger = ping.Pinger(opened, place, 56)

            def take() -> None:
                for number, _ in pinger.receive():
                    if number in waiting and not waiting[number].done():
                        waiting[number].set_result(None)

            loop = asyncio.get_running_loop()
            loop.add_reader(opened, take)

            async def ask(number: int) -> str:
                waiting[number] = loop.create_future()
                try:
                    _, outcome = pinger.send(number)
                    if outcome == "ok":
                        await waiting[number]
                    return outcome
                finally:
                    pinger.give_up(number)
                    del waiting[number]

            try:
                yield ask
            finally:
                loop.remove_reader(opened)

    return make


def _tcp(lab: Lab, source: str, target: str) -> Maker:
    place, port = locate_port(lab, target)

    @contextlib.asynccontextmanager
    async def make() -> AsyncIterator[Ask]:
        async def ask(number: int) -> str:
            connection = await asyncio.open_connection(str(place.address), port)
            connection[1].transport.abort()  # no TIME_WAIT for each question
            return "ok"

        yield ask

    return make


def _http(lab: Lab, source: str, target: str) -> Maker:
    parts = http.parse_url(target)
    place, port = http.place_of(lab, parts)
    query = f"?{parts.query}" if parts.query else ""
    request = f"GET {parts.path or '/'}{query} HTTP/1.0\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()

    @contextlib.asynccontextmanager
    async def make() -> AsyncIterator[Ask]:
        async def ask(number: int) -> str:
            stream, writer = await asyncio.open_connection(str(place.address), port)
            try:
                writer.write(request)
                words = (await stream.readline()).split()
                if not words:
                    return "reset"
                if not words[0].startswith(b"HTTP/") or len(words) < 2 or not words[1].isdigit():
                    return "malformed"
                status = int(words[1])
                while await stream.read(1 << 16):
                    pass
                return "ok" if status < 400 else f"http-{status}"
            finally:
                writer.transport.abort()

        yield ask

    return make


MAKERS: dict[Kind, Callable[[Lab, str, str], Maker]] = {"ping": _ping, "tcp": _tcp, "http": _http}
