"""Traffic for the benchmarks of the wire. Sockets are opened inside the nodes and used from here."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.wire_world import World
from testbed.net.wire.control import Traffic, Wire
from testbed.net.wire.protocol import LATENESS_BUCKETS, quantile_us

_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_STAMP = struct.Struct("=qq")
PORT = 5001
CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What went over the wire in a while, and what it took."""

    seconds: float
    frames: int
    bytes: int
    dropped: int
    lateness: list[int]
    cpu_user: float
    """Seconds of processor time of the core in itself, and in the kernel."""
    cpu_system: float

    def text(self) -> str:
        """For people."""
        user, system = (100 * value / self.seconds for value in (self.cpu_user, self.cpu_system))
        rates = f"{self.bytes / self.seconds / 1e6:.0f} MB/s in {self.frames / self.seconds:.0f} frames/s"
        late = ", ".join(f"{share:.1%} below {quantile_us(self.lateness, share)} us" for share in (0.5, 0.99, 0.999))
        return (
            f"{rates}; {self.dropped} dropped; core {user:.0f} % + kernel {system:.0f} % of a processor; late: {late}"
        )


def measured(folder: Path, work: Callable[[], None]) -> Carried:
    """What the wire whose state is in ``folder`` carries while ``work`` runs."""
    with Wire(folder) as wire:
        pid = wire.status().pid
        assert pid
        start, cpu, before = time.monotonic(), _cpu(pid), _totals(wire.statistics())
        work()
        seconds = time.monotonic() - start
        user, system = (new - old for new, old in zip(_cpu(pid), cpu, strict=True))
        after = _totals(wire.statistics())
    frames, octets, dropped, *lateness = (new - old for new, old in zip(after, before, strict=True))
    return Carried(seconds, frames, octets, dropped, lateness, user, system)


def _totals(statistics: dict[str, dict[str, Traffic]]) -> list[int]:
    totals = [0] * (3 + LATENESS_BUCKETS)
    for one in (traffic for both in statistics.values() for traffic in both.values()):
        it = one.counters
        row = [it.delivered, it.delivered_bytes, it.full + it.refused + one.overflowed, *one.lateness]
        totals = [total + value for total, value in zip(totals, row, strict=True)]
    return totals


def _cpu(pid: int) -> tuple[float, float]:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick


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


@contextmanager
def _in_real_time(priority: int = 10) -> Iterator[None]:
    """Run this process, and those that it starts meanwhile, before the other programs of the machine, of which the
    figures are then more independent; the wire has priority 50."""
    policy = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *policy)


@contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    """Run ``work`` in a process of its own meanwhile."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def one_way(world: World, hosts: Sequence[str], seconds: float, rate: int) -> list[float]:
    """Milliseconds on the way from each of ``hosts`` to ``core``, one packet at a time at ``rate`` a second in all.

    From the send call, in real time so that nothing gets between reading the clock and sending, to the kernel's time
    stamp on arrival.
    """
    with ExitStack() as stack:
        receiver = stack.enter_context(world.inside("core", lambda: _udp(("0.0.0.0", PORT))))  # noqa: S104
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 27)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        senders = [stack.enter_context(world.inside(host, _udp)) for host in hosts]
        for sender, host in zip(senders, hosts, strict=True):
            sender.connect((str(world.plan.links_of(host)[0].peer(host).addresses[0].ip), PORT))
        with _in_real_time(60):
            for number in _ticks(seconds, rate):
                senders[number % len(senders)].send(_STAMP.pack(time.time_ns(), number))
        return _delays(receiver)


def _udp(address: tuple[str, int] | None = None) -> socket.socket:
    result = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if address:
        result.bind(address)
    return result


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


def _ticks(seconds: float, rate: float, pause: float = 0.0) -> Iterator[int]:
    """0, 1, 2 ... at ``rate`` a second. With a ``pause``, those that are due meanwhile come in a row."""
    start = time.monotonic()
    for number in range(int(seconds * rate)):
        wait = start + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(max(wait, pause))
        yield number


def small_packets(world: World, source: str, target: str, seconds: float, rate: int) -> Carried:
    """UDP packets of 64 bytes. Nobody reads them: it is the wire that counts."""
    receiver = world.inside(target, lambda: _udp((world.address(target), PORT)))
    sender = world.inside(source, _udp)
    with receiver, sender:
        sender.connect((world.address(target), PORT))
        data = bytes(64)

        def work() -> None:
            for _ in _ticks(seconds, rate, 0.0005):
                sender.send(data)

        with _in_real_time():
            return measured(world.folder, work)


def one_flow(world: World, source: str, target: str, seconds: float) -> Carried:
    """One TCP connection that sends as fast as it can, after a second in which it gets going."""
    with ExitStack() as stack:
        stack.enter_context(_in_real_time())
        stack.enter_context(_beside(lambda: _receive_all(world, [target])))
        connection = stack.enter_context(_connect(world, source, target))
        connection.setblocking(True)
        data = bytes(1 << 20)

        def send(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                connection.sendall(data)

        send(1)
        return measured(world.folder, lambda: send(seconds))


def many_flows(world: World, pairs: Sequence[tuple[str, str]], seconds: float, rate: int, piece: int) -> Carried:
    """TCP from the first of each pair to the second, ``rate`` bytes a second in all, written in pieces."""
    with ExitStack() as stack:
        stack.enter_context(_in_real_time())
        stack.enter_context(_beside(lambda: _receive_all(world, [target for _, target in pairs])))
        senders = [stack.enter_context(_connect(world, source, target)) for source, target in pairs]
        data = bytes(piece)

        def work() -> None:
            for number in _ticks(seconds, rate / piece, 0.001):
                with suppress(BlockingIOError):
                    senders[number % len(senders)].send(data)

        return measured(world.folder, work)


def _connect(world: World, source: str, target: str) -> socket.socket:
    deadline = time.monotonic() + CONNECT_TIMEOUT
    while True:
        connection = world.inside(source, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        try:
            connection.settimeout(5)
            connection.connect((world.address(target), PORT))
            connection.setblocking(False)
            return connection
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _receive_all(world: World, nodes: Sequence[str]) -> None:
    poll = select.epoll()
    listeners = {one.fileno(): one for one in (_listen(world, node) for node in nodes)}
    connections: dict[int, socket.socket] = {}
    for fd in listeners:
        poll.register(fd, select.EPOLLIN)
    room = bytearray(4 << 20)
    while True:
        for fd, _ in poll.poll():
            if fd in listeners:
                connection, _ = listeners[fd].accept()
                connections[connection.fileno()] = connection
                poll.register(connection, select.EPOLLIN)
            elif connections[fd].recv_into(room) == 0:
                poll.unregister(fd)


def _listen(world: World, node: str) -> socket.socket:
    return world.inside(node, lambda: socket.create_server((world.address(node), PORT)))
