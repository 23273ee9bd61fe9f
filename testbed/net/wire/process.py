"""The core in Python: carries frames between TAP devices. The reference for core.c, and used where no C compiler is.

Run as ``python -m testbed.net.wire.process CONTROL COUNTERS MEMORY PRIORITY``: descriptor of the socket to the
supervisor, descriptor of the counters' memory, bytes that all queues together may hold, real-time priority.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import heapq
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import replace

from testbed.net.wire import protocol
from testbed.net.wire.model import Direction
from testbed.net.wire.protocol import Counters, Kind, Message
from testbed.net.wire.realtime import Timer, in_real_time
from testbed.net.wire.tap import LONGEST_FRAME, VNET_HEADER

BATCH = 32
"""Frames read from a device before others get their turn."""
DELIVERIES = 256
"""Frames delivered before devices are read again, lest their queues overflow."""
SLACK_NS = 20_000
"""Frames leave this much too early at most: those due almost together leave in one go."""
PACE_NS = 100_000
ROUNDS = 16
"""Under load, rounds begin ``PACE_NS`` apart on average and each does more: a wake-up costs more than a frame. So many
in a row may come at once, so that a wire with little to do is never late for this."""
OVERHEAD = 64
"""Bytes that a queued frame takes beside its own."""

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_now = time.monotonic_ns


class _Flow:
    """One direction of a link at work."""

    def __init__(self, number: int, source: int, target: int) -> None:
        self.number = number
        self.source = source
        self.target = target
        self.model = Direction((0, 0, 0, 0))
        self.counters = Counters()
        self.lateness = [0] * protocol.LATENESS_BUCKETS
        self.queued_bytes = 0


class _Link:
    def __init__(self, a: int, b: int) -> None:
        self.open = False
        self.flows = (_Flow(0, a, b), _Flow(1, b, a))


_Queued = tuple[int, int, _Flow, bytes]


class Core:
    """All links of a lab."""

    def __init__(self, control: socket.socket, table: memoryview, memory: int) -> None:
        self._control = control
        self._table = table
        self._memory = memory
        self._links: dict[int, _Link] = {}
        self._by_fd: dict[int, tuple[_Link, _Flow]] = {}
        self._queue: list[_Queued] = []
        self._queued_bytes = 0
        self._order = 0
        self._begun = deque([0] * ROUNDS, ROUNDS)
        self._timer = Timer()
        self._epoll = select.epoll()
        self._epoll.register(control.fileno(), select.EPOLLIN)
        self._epoll.register(self._timer.fd, select.EPOLLIN)

    def run(self) -> None:
        """Carry frames until the supervisor is gone."""
        while True:
            self._pace()
            timeout = -1.0
            if self._queue:
                due = self._queue[0][0] - SLACK_NS
                if due <= _now():
                    timeout = 0
                else:
                    self._timer.arm(due)
            for fd, _ in self._epoll.poll(timeout, 256):
                if fd in self._by_fd:
                    self._receive(fd)
                    self._deliver()
                elif fd == self._timer.fd:
                    self._timer.over()
                elif fd == self._control.fileno() and not self._obey():
                    return
            self._deliver()

    def _pace(self) -> None:
        now, soonest = _now(), self._begun[0] + ROUNDS * PACE_NS
        if now < soonest:
            time.sleep((soonest - now) / 1e9)
            now = soonest
        self._begun.append(now)

    def _receive(self, fd: int) -> None:
        link, flow = self._by_fd[fd]
        counters, arrive = flow.counters, flow.model.arrive
        for _ in range(BATCH):
            try:
                frame = os.read(fd, LONGEST_FRAME)
            except BlockingIOError:
                return
            except OSError:
                self._forget_fd(fd)  # the device is gone; reading it again would never block
                return
            length = len(frame) - VNET_HEADER
            counters.frames += 1
            counters.bytes += length
            if not link.open:
                counters.closed += 1
                continue
            copies = arrive(_now(), length)
            if not copies:
                counters.lost += 1
                continue
            counters.duplicated += len(copies) - 1
            for due, bit in copies:
                self._enqueue(flow, due, frame, bit)

    def _enqueue(self, flow: _Flow, due: int, frame: bytes, bit: int) -> None:
        size = len(frame) + OVERHEAD
        if flow.queued_bytes + size > flow.model.now.limit_bytes or self._queued_bytes + size > self._memory:
            flow.counters.full += 1
            return
        if bit >= 0:
            flow.counters.corrupted += 1
            changed = bytearray(frame)
            changed[VNET_HEADER + bit // 8] ^= 1 << bit % 8
            frame = bytes(changed)
        flow.queued_bytes += size
        self._queued_bytes += size
        self._order += 1
        heapq.heappush(self._queue, (due, self._order, flow, frame))

    def _deliver(self) -> None:
        queue = self._queue
        for _ in range(DELIVERIES):
            if not queue:
                return
            now = _now()
            if queue[0][0] > now + SLACK_NS:
                return
            due, _, flow, frame = heapq.heappop(queue)
            self._leave(flow, frame)
            counters = flow.counters
            try:
                os.write(flow.target, frame)
            except OSError:
                counters.refused += 1
                continue
            counters.delivered += 1
            counters.delivered_bytes += len(frame) - VNET_HEADER
            late = max(0, now - due)
            counters.latest_ns = max(counters.latest_ns, late)
            flow.lateness[min((late // 1000).bit_length(), protocol.LATENESS_BUCKETS - 1)] += 1

    def _leave(self, flow: _Flow, frame: bytes) -> None:
        flow.queued_bytes -= len(frame) + OVERHEAD
        self._queued_bytes -= len(frame) + OVERHEAD

    def _obey(self) -> bool:
        """Do what the supervisor asks; False if it is gone."""
        data, fds, _, _ = socket.recv_fds(self._control, protocol.SIZE, 2)
        if not data:
            return False
        request = protocol.unpack(data)
        try:
            answer = self._do(request, fds)
        except KeyError:
            answer = replace(request, error=errno.ENOENT)
        self._control.send(answer.pack())
        return True

    def _do(self, request: Message, fds: list[int]) -> Message:
        if request.kind == Kind.ADD:
            self._add(request.link, fds)
            return replace(request, values=(fds[0], fds[1], 0, 0))
        if request.kind == Kind.PING:
            for number, link in self._links.items():
                self._flush(number, link)
            return replace(request, values=(len(self._queue), self._queued_bytes, 0, 0))
        link = self._links[request.link]
        if request.kind == Kind.SEED:
            flow = link.flows[request.argument]
            flow.model = Direction(request.values, flow.model.now)
        elif request.kind == Kind.SET:
            flow = link.flows[request.argument]
            flow.model.change(request.behaviour)
            return replace(request, behaviour=flow.model.now)
        elif request.kind == Kind.OPEN:
            link.open = bool(request.argument)
            if not link.open:
                self._discard(link)
        elif request.kind == Kind.REMOVE:
            self._remove(request.link)
        return request

    def _add(self, number: int, fds: list[int]) -> None:
        link = _Link(*fds)
        self._links[number] = link
        for direction, flow in enumerate(link.flows):
            flow.counters, flow.lateness = protocol.read_counters(self._table, number, direction)
            self._by_fd[flow.source] = link, flow
            self._epoll.register(flow.source, select.EPOLLIN)

    def _discard(self, link: _Link) -> None:
        left = []
        for item in self._queue:
            if item[2] in link.flows:
                self._leave(item[2], item[3])
                item[2].counters.closed += 1
            else:
                left.append(item)
        self._queue = left
        heapq.heapify(left)

    def _remove(self, number: int) -> None:
        link = self._links.pop(number)
        self._discard(link)
        self._flush(number, link)
        for flow in link.flows:
            if flow.source in self._by_fd:
                self._forget_fd(flow.source)
            os.close(flow.source)

    def _forget_fd(self, fd: int) -> None:
        del self._by_fd[fd]
        self._epoll.unregister(fd)

    def _flush(self, number: int, link: _Link) -> None:
        for flow in link.flows:
            protocol.write_counters(self._table, number, flow.number, flow.counters, flow.lateness)


def main(arguments: list[str]) -> None:
    """Serve the supervisor until it ends."""
    control_fd, counters_fd, memory, priority = (int(word) for word in arguments)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    control = socket.socket(fileno=control_fd)
    table = memoryview(mmap.mmap(counters_fd, protocol.TABLE))
    core = Core(control, table, memory)
    real_time = in_real_time(priority)
    control.send(Message(Kind.HELLO, argument=real_time, values=(protocol.VERSION, 0, 0, 0)).pack())
    gc.collect()
    gc.freeze()
    gc.disable()
    core.run()


if __name__ == "__main__":
    main(sys.argv[1:])
