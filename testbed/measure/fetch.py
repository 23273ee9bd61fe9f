"""One download through a SOCKS proxy, timed and verified."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.measure import socks

_HEADER_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """What is fetched, and what it must be."""

    address: str
    port: int
    path: str
    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class Download:
    """How one download went. Times are ``time.monotonic()`` values."""

    client: str
    number: int
    """Of this client's downloads, from 1."""
    started: float
    """Just before the connection to the proxy."""
    first_byte: float | None
    """When the first byte of the HTTP answer was there."""
    last_byte: float | None
    """When the last byte was there; None where it did not get that far."""
    ended: float
    """When the outcome was known."""
    bytes: int
    """Of the body."""
    outcome: str
    """``ok``; ``timeout``; ``unfinished`` (cut at the end of the load); ``socks-N`` and ``http-N`` with the code;
    ``short``, ``long``, ``corrupt`` (not the bytes expected); ``reset`` (the connection broke); ``malformed`` (not
    HTTP); ``proxy`` (no proxy answers at the socket, or one that does not do SOCKS5 with a password).
    """
    instance: str
    """The header ``X-Instance`` of the answer: who served; empty where none answered."""


class _Malformed(Exception):
    pass


@dataclass
class _Trace:
    first_byte: float | None = None
    last_byte: float | None = None
    bytes: int = 0
    instance: str = ""


async def fetch(client: str, number: int, proxy: Path, target: Target, username: str, timeout: float) -> Download:
    """Fetch ``target`` once, within ``timeout`` seconds from first to last. Never raises for a failed download.

    A cancelled fetch has the outcome ``unfinished``: it returns it rather than end in CancelledError.
    """
    trace = _Trace()
    started = time.monotonic()
    try:
        async with asyncio.timeout(timeout):
            outcome = await _fetch(proxy, target, username, trace)
    except TimeoutError:
        outcome = "timeout"
    except asyncio.CancelledError:
        outcome = "unfinished"
    except socks.SocksRefused as refused:
        outcome = f"socks-{refused.code}"
    except (socks.SocksProtocolError, FileNotFoundError, ConnectionRefusedError, PermissionError):
        outcome = "proxy"
    except (OSError, asyncio.IncompleteReadError):
        outcome = "reset"
    except _Malformed:
        outcome = "malformed"
    ended = time.monotonic()
    return Download(
        client, number, started, trace.first_byte, trace.last_byte, ended, trace.bytes, outcome, trace.instance
    )


async def _fetch(proxy: Path, target: Target, username: str, trace: _Trace) -> str:
    reader, writer = await socks.connect(proxy, target.address, target.port, username)
    try:
        # HTTP/1.0: no chunks, and the server ends the connection. RFC 9112.
        writer.write(f"GET {target.path} HTTP/1.0\r\nHost: {target.address}\r\nConnection: close\r\n\r\n".encode())
        head, rest = await _head(reader, trace)
        status, headers = _parse_head(head)
        trace.instance = headers.get("x-instance", "")
        if status != 200:
            return f"http-{status}"
        return await _body(reader, rest, headers.get("content-length"), target, trace)
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader, trace: _Trace) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        part = await reader.read(1 << 16)
        if not part:
            raise _Malformed if data else ConnectionResetError("no answer")
        if trace.first_byte is None:
            trace.first_byte = time.monotonic()
        data += part
        if len(data) > _HEADER_LIMIT + (1 << 16):
            raise _Malformed
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not (len(words[1]) == 3 and words[1].isdecimal()):
        raise _Malformed
    fields = (line.partition(":") for line in lines[1:])
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in fields}


async def _body(reader: asyncio.StreamReader, part: bytes, length: str | None, target: Target, trace: _Trace) -> str:
    """Read what is announced, or to the end, but never much more than is expected."""
    announced = int(length) if length is not None and length.isdecimal() else None
    end = target.size + 1 if announced is None else min(announced, target.size + 1)
    digest = hashlib.sha256()
    while True:
        digest.update(part)
        trace.bytes += len(part)
        if trace.bytes >= end:
            break
        part = await reader.read(1 << 16)
        if not part:
            break
    if trace.bytes < target.size:
        return "short"
    if trace.bytes > target.size or (announced or 0) > target.size:
        return "long"
    trace.last_byte = time.monotonic()
    return "ok" if digest.hexdigest() == target.sha256 else "corrupt"
