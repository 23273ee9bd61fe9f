"""Packets with numbers, and what becomes of them."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from bench.wire_world import World
from testbed.errors import TestbedError
from testbed.net.wire import native
from testbed.net.wire.model import Direction, behaviour, seeds
from testbed.net.wire.settings import settings_of

MakeWorld = Callable[..., World]
ANY_CORE = pytest.mark.parametrize("core", ["best"], indirect=True)
"""For tests of what is the same whichever core carries the links."""
PORT = 5001
_NUMBER = struct.Struct("=QQ")
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33


def core_command(core: str) -> tuple[str, ...]:
    """The command of a core; skips the test where the one in C cannot be had."""
    if core == "best":
        return native.command()
    if core == "python":
        return native.PYTHON
    try:
        return (str(native.compiled()),)
    except TestbedError as error:
        pytest.skip(f"no core in C: {error}")


@dataclass(frozen=True)
class Arrival:
    """A packet that came through."""

    number: int
    milliseconds: float
    """From the send call to the kernel's time stamp."""


class Stream:
    """Numbered UDP packets from node ``a`` to ``b``."""

    def __init__(self, world: World, source: str = "a", target: str = "b") -> None:
        self._receiver = world.inside(target, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._receiver.bind((world.address(target), PORT))
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._sender = world.inside(source, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._sender.connect((world.address(target), PORT))

    def send(self, numbers: Iterable[int], *, size: int = 64, pause: float = 0.0, burst: int = 1) -> None:
        """Send packets, with a pause after each burst."""
        for count, number in enumerate(numbers, 1):
            self._sender.send(_NUMBER.pack(number, time.time_ns()).ljust(size, b"\0"))
            if pause and count % burst == 0:
                time.sleep(pause)

    def receive(
        self, wanted: int, *, timeout: float = 10, quiet: float = 0.5, last: int | None = None
    ) -> list[Arrival]:
        """``wanted`` packets, or all until number ``last``, and those that come within ``quiet`` seconds after them;
        fewer after ``timeout``."""
        found: list[Arrival] = []
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            over = len(found) >= wanted or (found and found[-1].number == last)
            self._receiver.settimeout(quiet if over else left)
            try:
                data, ancillary, _, _ = self._receiver.recvmsg(2048, 64)
            except TimeoutError:
                break
            number, sent = _NUMBER.unpack_from(data)
            seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
            found.append(Arrival(number, (seconds * 10**9 + nanoseconds - sent) / 1e6))
        return found

    def close(self) -> None:
        """Close the sockets."""
        self._sender.close()
        self._receiver.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reference(world: World, direction: str = "forward", generation: int = 1) -> Direction:
    """The model of a direction of the first link, as a core has it at its start."""
    link = world.plan.links[0]
    settings = settings_of(link.forward if direction == "forward" else link.backward)
    return Direction(seeds(world.plan.seed, link.name, direction, generation), behaviour(settings))


def link_name(world: World) -> str:
    """The name of the first link."""
    return world.plan.links[0].name


def events(world: World, kind: str) -> list[dict[str, Any]]:
    """The events of a kind that the wire has recorded."""
    lines = (world.folder / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def reaches(world: World, source: str = "a", target: str = "b", within: float = 1) -> bool:
    """Whether one echo request is answered within so many seconds."""
    return "1 received" in world.run(source, "ping", "-c1", f"-W{within:g}", "-n", world.address(target))


def round_trips(world: World, count: int = 15, source: str = "a", target: str = "b") -> list[float]:
    """Milliseconds of echo requests, sorted."""
    output = world.run(source, "ping", "-n", f"-c{count}", "-i0.02", world.address(target))
    return sorted(float(line.partition("time=")[2].split()[0]) for line in output.splitlines() if "time=" in line)


def has_carrier(world: World, node: str, ifname: str = "eth0") -> bool:
    """Whether the interface thinks that a cable is plugged in."""
    return "NO-CARRIER" not in world.run(node, "ip", "link", "show", ifname)


def addresses_and_routes(world: World, node: str) -> str:
    """What must survive whatever happens to the wire, without what tells of the carrier."""
    text = "".join(
        world.run(node, "ip", *words)
        for words in (["-4", "-o", "addr"], ["-6", "-o", "addr", "show", "scope", "global"], ["route"], ["neigh"])
    )
    return text.replace(" linkdown", "")
