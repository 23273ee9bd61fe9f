"""SOCKS5 over a unix socket (RFC 1928) with username and password (RFC 1929), as far as a load generator needs it."""

from __future__ import annotations

import asyncio
from pathlib import Path

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SocksRefused(Exception):
    """The proxy answered with an error. ``code`` is its reply field: 1 to 8 of RFC 1928 section 6, or one of tor's
    own (proposal 304, 240 and up) where ExtendedErrors is set.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"SOCKS reply {code}")
        self.code = code


class SocksProtocolError(Exception):
    """The proxy does not speak SOCKS5 with username and password."""


async def connect(proxy: Path, host: str, port: int, username: str, password: str = "x") -> Stream:  # noqa: S107
    """A connection to ``host`` (resolved by the proxy) through the SOCKS5 proxy at the unix socket ``proxy``.

    tor keeps streams with different usernames or passwords on different circuits (IsolateSOCKSAuth).
    Raises ``SocksRefused``, ``SocksProtocolError``, OSError (no proxy there), IncompleteReadError (proxy went away).
    """
    reader, writer = await asyncio.open_unix_connection(proxy)
    try:
        await _negotiate(reader, writer, username.encode(), password.encode())
        await _request(reader, writer, host.encode("ascii"), port)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _negotiate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, username: bytes, password: bytes
) -> None:
    writer.write(b"\x05\x01\x02")  # version 5, one method offered: username and password
    version, method = await reader.readexactly(2)
    if (version, method) != (5, 2):
        raise SocksProtocolError(f"proxy chose version {version}, method {method}")
    writer.write(bytes([1, len(username)]) + username + bytes([len(password)]) + password)
    _, status = await reader.readexactly(2)
    if status != 0:
        raise SocksProtocolError(f"username and password refused with {status}")


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes, port: int) -> None:
    writer.write(b"\x05\x01\x00\x03" + bytes([len(host)]) + host + port.to_bytes(2, "big"))
    version, code, _, kind = await reader.readexactly(4)
    if version != 5:
        raise SocksProtocolError(f"answer of version {version}")
    if code != 0:
        raise SocksRefused(code)
    if kind == 3:
        length = (await reader.readexactly(1))[0]
    elif kind in (1, 4):
        length = 4 if kind == 1 else 16
    else:
        raise SocksProtocolError(f"address type {kind}")
    await reader.readexactly(length + 2)
