"""One HTTP request, timed: connection, first byte, last byte, and where redirects led."""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit

from testbed.errors import TestbedError
from testbed.measure.probes.base import Recorder, Target, connect, in_node, locate, outcome_of, recording, split_port

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_REDIRECTS = {301, 302, 303, 307, 308}
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that led elsewhere."""

    status: int
    url: str
    """Where it came from."""
    location: str
    """Where it led to."""


@dataclass(frozen=True, slots=True)
class HttpResult:
    """How a request went. Times are seconds; those that were not reached are None."""

    source: str
    url: str
    started: float
    """``time.monotonic()``."""
    outcome: str
    """``ok`` whatever the status: the answer came whole. ``short``: its end is missing. ``malformed``: not HTTP.
    ``too-many-redirects``. Else as of a TCP connection: ``timeout``, ``refused``, ``unreachable``, ``reset``."""
    final_url: str
    """Where the last request went; not ``url`` where redirects were followed."""
    status: int | None = None
    connect: float | None = None
    """Of the last connection alone."""
    first_byte: float | None = None
    """From the start, redirects included, to the first byte of the last answer."""
    total: float | None = None
    """From the start, redirects included, to the last byte."""
    bytes: int = 0
    """Of the last answer's body."""
    redirects: tuple[Redirect, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the last answer, names in lower case."""

    @property
    def ok(self) -> bool:
        """It came whole, with a status below 400."""
        return self.outcome == "ok" and self.status is not None and self.status < 400


class _Failed(Exception):
    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass
class _Trace:
    started: float
    url: str
    status: int | None = None
    connect: float | None = None
    first_byte: float | None = None
    total: float | None = None
    bytes: int = 0
    redirects: list[Redirect] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    def since(self) -> float:
        return time.monotonic() - self.started


def http_get(
    lab: Lab,
    source: str,
    url: str,
    *,
    follow: bool = True,
    most_redirects: int = 10,
    timeout: float = 10.0,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    address: str | None = None,
    recorder: Recorder | None = None,
) -> HttpResult:
    """Fetch ``url`` (``http://b/file``) from node ``source`` within ``timeout`` seconds, redirects included.

    The URL's host is a node or an address. With ``address`` (a node or an address) every connection goes there,
    whatever host the URL names. Samples: ``http_first_byte`` and ``http_total``, seconds.
    """
    trace = _Trace(time.monotonic(), url)
    with recording(recorder, "http", source, url) as call:
        trace.started = call.started
        try:
            outcome = _follow(lab, source, trace, follow, most_redirects, timeout, method, headers or {}, address)
        except _Failed as failed:
            outcome = failed.outcome
        result = HttpResult(
            source,
            url,
            trace.started,
            outcome,
            trace.url,
            trace.status,
            trace.connect,
            trace.first_byte,
            trace.total,
            trace.bytes,
            tuple(trace.redirects),
            trace.headers,
        )
        call.sample("http_first_byte", result.first_byte, call.started)
        call.sample("http_total", result.total, call.started)
        call.result(
            outcome=outcome,
            status=result.status,
            connect=_rounded(result.connect),
            first_byte=_rounded(result.first_byte),
            total=_rounded(result.total),
            bytes=result.bytes,
            redirects=[redirect.location for redirect in result.redirects],
        )
    return result


def parse_url(url: str) -> SplitResult:
    """The parts of an http:// URL; TestbedError for another."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.netloc:
        raise TestbedError(f"{url!r} is no URL that this probe can fetch", remedy="write http://NODE[:PORT]/PATH")
    return parts


def place_of(lab: Lab, parts: SplitResult, address: str | None = None) -> tuple[Target, int]:
    """Where a URL leads to: node or address, and port."""
    host, port = split_port(parts.netloc.rpartition("@")[2])
    return locate(lab, address or host), port or 80


def _follow(
    lab: Lab,
    source: str,
    trace: _Trace,
    follow: bool,
    most: int,
    timeout: float,
    method: str,
    headers: Mapping[str, str],
    address: str | None,
) -> str:
    while True:
        parts = parse_url(trace.url)
        _fetch(lab, source, trace, parts, timeout, method, headers, address)
        location = trace.headers.get("location", "")
        if trace.status not in _REDIRECTS or not location:
            return "ok"
        onward = urljoin(trace.url, location)
        trace.redirects.append(Redirect(trace.status, trace.url, onward))
        if not follow:
            return "ok"
        if len(trace.redirects) > most:
            return "too-many-redirects"
        trace.url, trace.bytes = onward, 0
        if trace.status == 303:
            method = "GET"


def _fetch(
    lab: Lab,
    source: str,
    trace: _Trace,
    parts: SplitResult,
    timeout: float,
    method: str,
    headers: Mapping[str, str],
    address: str | None,
) -> None:
    place, port = place_of(lab, parts, address)
    trace.connect = trace.first_byte = trace.total = trace.status = None
    opened = in_node(lab, source, lambda: socket.socket(place.family, socket.SOCK_STREAM))
    with opened:
        before = time.monotonic()
        outcome = connect(opened, place, port, _left(trace, timeout))
        if outcome != "ok":
            raise _Failed(outcome)
        trace.connect = time.monotonic() - before
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = {"Host": parts.netloc, "User-Agent": "testbed", "Accept": "*/*", "Connection": "close", **headers}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        try:
            opened.sendall(f"{head}\r\n".encode())
            _read(opened, trace, method, timeout)
        except http.client.IncompleteRead as error:
            raise _Failed("short") from error
        except (http.client.HTTPException, ValueError) as error:
            raise _Failed("malformed") from error
        except OSError as error:
            raise _Failed(outcome_of(error)) from error


class _Stream(io.RawIOBase):
    """A socket to read from until a moment that does not move, however slowly bytes drip in."""

    def __init__(self, opened: socket.socket, trace: _Trace, timeout: float) -> None:
        self._socket, self._trace, self._timeout = opened, trace, timeout

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client asks of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there."""
        self._socket.settimeout(_left(self._trace, self._timeout))
        return self._socket.recv_into(buffer)


def _read(opened: socket.socket, trace: _Trace, method: str, timeout: float) -> None:
    opened.settimeout(_left(trace, timeout))
    if not opened.recv(1, socket.MSG_PEEK):
        raise _Failed("reset")
    trace.first_byte = trace.since()
    answer = http.client.HTTPResponse(_Stream(opened, trace, timeout), method=method)  # type: ignore[arg-type]
    try:
        answer.begin()
        trace.status = answer.status
        trace.headers = {name.lower(): value for name, value in answer.getheaders()}
        while piece := answer.read1(_PIECE):
            trace.bytes += len(piece)
        if answer.length:
            raise _Failed("short")
        trace.total = trace.since()
    finally:
        answer.close()


def _left(trace: _Trace, timeout: float) -> float:
    left = trace.started + timeout - time.monotonic()
    if left <= 0:
        raise _Failed("timeout")
    return left


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
