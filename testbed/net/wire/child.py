"""The core as its supervisor sees it: a child process that answers requests, or has died, or hangs."""

from __future__ import annotations

import array
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from testbed.errors import TestbedError
from testbed.net.wire import protocol
from testbed.net.wire.protocol import Kind, Message

PRIORITY = 50
"""SCHED_FIFO priority of the core."""
START_TIMEOUT = 5.0
_GRACE = 0.2
"""After a time-out the answer may still come: supervisor and core may both have been stopped, with the machine."""


class CoreGone(Exception):
    """The core has died, or was ended because it did not answer. ``how`` says it in words."""

    def __init__(self, how: str, *, hung: bool = False) -> None:
        super().__init__(how)
        self.how = how
        self.hung = hung


class Child:
    """A running core. All methods but ``end`` raise CoreGone if it is not there any more."""

    def __init__(self, command: Sequence[str], counters: int, memory: int, hang: float) -> None:
        """Start ``command``; it must greet within ``START_TIMEOUT`` seconds. TestbedError if it cannot be started."""
        self._hang = hang
        self._sequence = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        arguments = [*command, str(theirs.fileno()), str(counters), str(memory), str(PRIORITY)]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    arguments, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), counters), cwd="/"
                )
        except OSError as error:
            self._socket.close()
            raise TestbedError(f"cannot start {command[0]}: {error.strerror}") from error
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        try:
            hello = self._receive(START_TIMEOUT)
            if hello.kind != Kind.HELLO or hello.values[0] != protocol.VERSION:
                raise CoreGone("it speaks another language")
        except CoreGone:
            self.end()
            raise
        self.real_time = bool(hello.argument)

    def request(self, message: Message, fds: Sequence[int] = ()) -> Message:
        """Ask and wait for the answer; OSError if the core refuses. CoreGone after ``hang`` seconds without one, and
        then the core has been ended."""
        self._sequence += 1
        message = replace(message, sequence=self._sequence)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([message.pack()], ancillary)
        except OSError:
            raise CoreGone(self.end()) from None
        answer = self._receive(self._hang)
        if answer.sequence != self._sequence:
            raise CoreGone(f"it answered {answer.sequence} instead of {self._sequence}; {self.end()}")
        if answer.error:
            raise OSError(answer.error, f"the core refused {Kind(message.kind).name}: {os.strerror(answer.error)}")
        return answer

    def _receive(self, timeout: float) -> Message:
        """The next message; CoreGone, with the core ended, if there is none in time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        start = time.monotonic()
        if not poll.poll(timeout * 1000) and not poll.poll(_GRACE * 1000):
            self.end()
            raise CoreGone(f"it did not answer for {time.monotonic() - start:.1f} s", hung=True)
        try:
            data = self._socket.recv(protocol.SIZE)
        except OSError:
            data = b""
        if not data:
            raise CoreGone(self.end())
        return protocol.unpack(data)

    def end(self) -> str:
        """End the core, which may be dead already, and say how it ended. Its descriptors are closed then."""
        if self._socket.fileno() < 0:
            return ""
        self._socket.close()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        os.close(self.pidfd)
        status = self._process.wait()
        if status < 0:
            return f"killed by signal {-status} ({signal.Signals(-status).name})"
        return f"ended with status {status}"
