"""Heads of requests and responses (RFC 9112)."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import unquote

REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
REASONS |= {411: "Length Required", 413: "Content Too Large", 431: "Request Header Fields Too Large"}


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    fields: dict[str, str]
    """By name in small letters."""
    keep: bool
    """Whether the connection goes on after the response."""


def read_request(head: bytes | bytearray) -> Request:
    """From its head, without the empty line after it. ValueError if it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ValueError(f"no request: {first!r}")
    method, target, version = words
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    wish = fields.get("connection", "").lower()
    keep = wish != "close" and (version != "HTTP/1.0" or wish == "keep-alive")
    return Request(method, unquote(target.partition("?")[0]), fields, keep)


def response_head(server: str, status: int, length: int, extra: str, *, keep: bool) -> bytes:
    """Of a response with a body of ``length`` bytes; ``extra`` are more fields, each with its end of line."""
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nDate: {formatdate(usegmt=True)}\r\nX-Server: {server}\r\n"
        f"Content-Length: {length}\r\n{extra}Connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    ).encode()
