"""Traffic for the benchmarks of the wire. Sockets are opened inside the nodes and used from here."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from bench.wire_world import World

_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_STAMP = struct.Struct("=qq")
PORT = 5001


@dataclass(frozen=True, slots=True)
class Carried:
    """What went over the wire in a while, and what it took."""

    seconds: float
    bytes: int
    frames: int
    cpu_user: float
    """Seconds of processor time of the core, in itself and in the kernel."""
    cpu_system: float
    dropped: int

    def text(self) -> str:
        """For people."""
        user, system = (100 * value / self.seconds for value in (self.cpu_user, self.cpu_system))
        rates = f"{self.bytes / self.seconds / 1e6:.0f} MB/s, {self.frames / self.seconds:.0f} frames/s"
        return f"{rates}, core {user:.0f} % + {system:.0f} % in the kernel, {self.dropped} dropped"


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many programs that take all the processor time they can get."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def one_way(world: World, hosts: Sequence[str], seconds: float, rate: int) -> list[float]:
    """Milliseconds on the way from each of ``hosts`` to ``core``, one packet at a time at ``rate`` a second in all.

    From the send call, in real time so that nothing gets between reading the clock and sending, to the kernel's time
    stamp on arrival.
    """
    with ExitStack() as stack:
        receiver = stack.enter_context(world.inside("core", lambda: _udp(("0.0.0.0", PORT))))  # noqa: S104
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 27)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        senders = [stack.enter_context(world.inside(host, lambda: _udp())) for host in hosts]
        for sender, host in zip(senders, hosts, strict=True):
            sender.connect((str(world.plan.links_of(host)[0].peer(host).addresses[0].ip), PORT))
        policy = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(60))
        try:
            _send_evenly(senders, seconds, rate)
        finally:
            os.sched_setscheduler(0, *policy)
        return _delays(receiver)


def _udp(address: tuple[str, int] | None = None) -> socket.socket:
    result = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if address:
        result.bind(address)
    return result


def _send_evenly(senders: Sequence[socket.socket], seconds: float, rate: int) -> None:
    start = time.monotonic()
    for number in range(int(seconds * rate)):
        wait = start + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        senders[number % len(senders)].send(_STAMP.pack(time.time_ns(), number))


def _delays(receiver: socket.socket) -> list[float]:
    found: list[float] = []
    receiver.settimeout(0.5)
    while True:
        try:
            data, ancillary, _, _ = receiver.recvmsg(64, 64)
        except TimeoutError:
            return found
        sent, _ = _STAMP.unpack(data)
        seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
        found.append((seconds * 10**9 + nanoseconds - sent) / 1e6)


def many_flows(world: World, pairs: Sequence[tuple[str, str]], seconds: float, rate: int, piece: int) -> Carried:
    """TCP from the first of each pair to the second, ``rate`` bytes a second in all, written in pieces."""
    child = os.fork()
    if child == 0:
        try:
            _receive_all(world, [target for _, target in pairs])
        finally:
            os._exit(0)
    try:
        senders = [_connect(world, source, target) for source, target in pairs]
        return _measured(world, lambda: _write_evenly(senders, seconds, rate, piece))
    finally:
        for sender in senders:
            sender.close()
        os.kill(child, 9)
        os.waitpid(child, 0)


def _connect(world: World, source: str, target: str) -> socket.socket:
    connection = world.inside(source, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    connection.settimeout(5)
    for _ in range(50):
        try:
            connection.connect((world.address(target), PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    connection.setblocking(False)
    return connection


def _receive_all(world: World, nodes: Sequence[str]) -> None:
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    listeners = [_listen(world, node) for node in nodes]
    for listener in listeners:
        sockets[listener.fileno()] = listener
        poll.register(listener, select.EPOLLIN)
    room = bytearray(1 << 20)
    while True:
        for fd, _ in poll.poll():
            one = sockets[fd]
            if one in listeners:
                connection, _ = one.accept()
                sockets[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
            elif one.recv_into(room) == 0:
                poll.unregister(one)


def _listen(world: World, node: str) -> socket.socket:
    return world.inside(node, lambda: socket.create_server((world.address(node), PORT)))


def _write_evenly(senders: Sequence[socket.socket], seconds: float, rate: int, piece: int) -> None:
    data = bytes(piece)
    start = time.monotonic()
    number = 0
    while (passed := time.monotonic() - start) < seconds:
        while number * piece < passed * rate:
            with suppress(BlockingIOError):
                senders[number % len(senders)].send(data)
            number += 1
        time.sleep(0.001)


def _measured(world: World, work: object) -> Carried:
    assert callable(work)
    with world.wire() as wire:
        before, start, cpu = _totals(wire.statistics()), time.monotonic(), core_cpu(world)
        work()
        seconds = time.monotonic() - start
        user, system = (new - old for new, old in zip(core_cpu(world), cpu, strict=True))
        after = _totals(wire.statistics())
    frames, octets, dropped = (new - old for new, old in zip(after, before, strict=True))
    return Carried(seconds, octets, frames, user, system, dropped)


def _totals(statistics: object) -> tuple[int, int, int]:
    frames = octets = dropped = 0
    assert isinstance(statistics, dict)
    for both in statistics.values():
        for traffic in both.values():
            frames += traffic.counters.delivered
            octets += traffic.counters.delivered_bytes
            dropped += traffic.counters.full + traffic.counters.refused
    return frames, octets, dropped


def core_cpu(world: World) -> tuple[float, float]:
    """Seconds that the core has spent in itself and in the kernel."""
    with world.wire() as wire:
        pid = wire.status().pid
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick
