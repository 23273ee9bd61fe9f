"""What a running bird says of its sessions and routes, by its control socket."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError, WaitTimeout

LIMIT = 30.0
_TICK = 0.05
_REPLY = re.compile(r"(\d{4})([- ])(.*)")
_LAST = re.compile(r"(?:^|\n)(?:0\d{3}|[89]\d{3}) [^\n]*\n\Z")


@dataclass(frozen=True, slots=True)
class SessionState:
    """One protocol of kind BGP."""

    name: str
    up: bool
    info: str
    """bird's own words: ``Established``, ``Active``, or what went wrong."""


def ask(path: Path, command: str, timeout: float = 5.0) -> list[str]:
    """The lines of bird's answer, without their codes. TestbedError where it does not answer, or says no."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            _read(connection)
            connection.sendall(command.encode() + b"\n")
            text = _read(connection)
    except OSError as error:
        raise TestbedError(f"bird does not answer: {error.strerror or error}", where=str(path)) from error
    lines = []
    for line in text.splitlines():
        found = _REPLY.match(line)
        if found and found[1][0] in "89":
            raise TestbedError(f"bird says of {command!r}: {found[3]}", where=str(path))
        lines.append(found[3] if found else line[1:])
    return lines


def _read(connection: socket.socket) -> str:
    """One answer: lines ``1234-text`` or `` text``, and a last one ``1234 text`` whose code begins with 0, 8 or 9."""
    data = b""
    while not _LAST.search(data.decode(errors="replace")):
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data.decode(errors="replace")


def sessions(path: Path) -> list[SessionState]:
    """Every BGP session that a bird is configured for."""
    found = []
    for line in ask(path, "show protocols"):
        words = line.split(None, 5)
        if len(words) >= 4 and words[1] == "BGP":
            info = words[5].strip() if len(words) > 5 else ""
            found.append(SessionState(words[0], words[3] == "up", info))
    return found


def prefixes(path: Path) -> set[str]:
    """Every prefix that a bird has told the kernel of; one without a usable next hop is not among them."""
    found = set()
    for line in ask(path, "show route primary"):
        words = line.split()
        if len(words) > 1 and "/" in words[0] and words[1] == "unicast":
            found.add(words[0])
    return found


def routes_via(path: Path, destination: str) -> list[str]:
    """Names of the protocols that offer a route to an address, the best first."""
    found = []
    for line in ask(path, f"show route for {destination} all"):
        match = re.search(r"\[(\S+) ", line)
        if match:
            found.append(match[1])
    return found


def await_sessions(sockets: Mapping[str, Path], timeout: float = LIMIT) -> float:
    """Wait until every session of every bird is up; returns the seconds. WaitTimeout names those that are not."""
    return await_all(lambda: down(sockets), "every BGP session to be established", timeout)


def down(sockets: Mapping[str, Path]) -> str:
    """The sessions that are not up, in words; empty if all are."""
    missing = []
    for node, path in sockets.items():
        try:
            states = sessions(path)
        except TestbedError as error:
            missing.append(f"{node}: {error.what}")
            continue
        missing += [f"{node} {state.name}: {state.info or 'not up'}" for state in states if not state.up]
        if not states:
            missing.append(f"{node}: no session configured")
    return "; ".join(missing)


def await_all(lack: Callable[[], str], awaited: str, timeout: float) -> float:
    """Wait until ``lack`` says nothing; returns the seconds. WaitTimeout repeats what it said last."""
    started = time.monotonic()
    while said := lack():
        if time.monotonic() - started > timeout:
            raise WaitTimeout(awaited, timeout, said)
        time.sleep(_TICK)
    return time.monotonic() - started
