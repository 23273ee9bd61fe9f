"""What probes share: where a target is, sockets in a node, and how a call is recorded."""

from __future__ import annotations

import errno
import math
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from testbed.errors import TestbedError
from testbed.net.namespace import inside

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.plan.types import Address

T = TypeVar("T")

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not know it
_TIMESPEC = struct.Struct("=qq")
ANCILLARY = 128
"""Bytes for what comes beside a datagram, such as its time."""


class Recorder(Protocol):
    """What a probe tells; a ``Run`` is one."""

    def event(self, kind: str, node: str = "", *, t: float | None = None, **detail: Any) -> None:
        """Something happened, at the ``time.monotonic()`` value ``t``."""

    def samples(self, rows: Iterable[tuple[float, str, str, float]]) -> None:
        """Values: (``time.monotonic()`` value, series, node, value)."""

    def since_start(self, t: float) -> float:
        """A ``time.monotonic()`` value as seconds after the run's start."""


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked: as it was named, and its address."""

    name: str
    address: Address

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return socket.AF_INET if self.address.version == 4 else socket.AF_INET6


def locate(lab: Lab, target: str) -> Target:
    """A target that is a node's name (its first address) or an address. TestbedError if it is neither."""
    try:
        return Target(target, ip_address(target))
    except ValueError:
        node = lab.node(target)
    try:
        return Target(target, lab.plan.address(node.name))
    except KeyError:
        raise TestbedError(f"node {target!r} has no address", remedy="name one of its neighbours") from None


def locate_port(lab: Lab, target: str, default: int | None = None) -> tuple[Target, int]:
    """A target with a port: ``b:80``, ``10.0.0.1:80`` or ``[fd00::1]:80``."""
    host, port = split_port(target)
    if port is None and default is None:
        raise TestbedError(f"{target!r} has no port", remedy=f"write {target}:80")
    return locate(lab, host), port if port is not None else int(default or 0)


def split_port(text: str) -> tuple[str, int | None]:
    """``b:80`` to (``b``, 80). An IPv6 address has a port only behind brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        return text, None
    if not port:
        return host, None
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise TestbedError(f"{port!r} is no port", remedy="write a number from 1 to 65535")
    return host, int(port)


def in_node(lab: Lab, node: str, work: Callable[[], T]) -> T:
    """Run something short, such as opening a socket, inside a node's network namespace."""
    lab.node(node)
    path = lab.namespace(node)
    try:
        return inside(path, work)
    except FileNotFoundError as error:
        if str(error.filename) != str(path):
            raise
        raise TestbedError("the node is not up", where=f"node {node}", remedy="start the lab") from error
    except PermissionError as error:
        raise TestbedError(
            f"cannot work inside the node: {error.strerror}", where=f"node {node}", remedy="run this as root"
        ) from error


def connect(opened: socket.socket, target: Target, port: int, timeout: float) -> str:
    """Connect and wait for it; the outcome as ``outcome_of`` names it."""
    opened.settimeout(timeout)
    try:
        opened.connect((str(target.address), port))
    except OSError as error:
        return outcome_of(error)
    return "ok"


def outcome_of(error: OSError) -> str:
    """A failed connection in one word: ``timeout``, ``refused``, ``unreachable``, ``reset``, or the errno's name."""
    if isinstance(error, TimeoutError):
        return "timeout"
    words = {
        errno.ECONNREFUSED: "refused",
        errno.EHOSTUNREACH: "unreachable",
        errno.ENETUNREACH: "unreachable",
        errno.EHOSTDOWN: "unreachable",
        errno.ECONNRESET: "reset",
        errno.EPIPE: "reset",
    }
    number = error.errno or 0
    return words.get(number) or errno.errorcode.get(number, type(error).__name__).lower()


def elapsed(ancillary: Sequence[tuple[int, int, bytes]], sent_wall_ns: int, sent: float) -> float:
    """Seconds from sending to the kernel's receipt (SO_TIMESTAMPNS), which does not depend on when we are scheduled.

    The wall clock may be set meanwhile: a result that cannot be is replaced by the time until now.
    """
    most = time.monotonic() - sent
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            taken: float = (seconds * 10**9 + nanoseconds - sent_wall_ns) / 1e9
            if 0 < taken <= most:
                return taken
    return most


class Call:
    """One call of a probe while it goes on; ``recording`` makes it an event at its end."""

    def __init__(self, recorder: Recorder | None, probe: str, source: str, target: str) -> None:
        self.started = time.monotonic()
        self.ended = self.started
        self._recorder = recorder
        self._probe, self._source, self._target = probe, source, target
        self._cpu = time.thread_time()
        self._detail: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """Who asks whom, the node of the call's samples: ``a>b``."""
        return f"{self._source}>{self._target}"

    def sample(self, series: str, value: float | None, t: float) -> None:
        """Record a value at the monotonic time ``t``; None is one that there is not, such as the time of no answer."""
        if self._recorder is not None:
            self._recorder.samples([(t, series, self.label, math.nan if value is None else value)])

    def result(self, **detail: Any) -> None:
        """Say how it went."""
        self._detail.update(detail)

    def record(self) -> None:
        """Record the event, with the CPU time that this thread has used for the call."""
        self.ended = time.monotonic()
        if self._recorder is None:
            return
        cost = time.thread_time() - self._cpu
        self._recorder.event(
            "probe",
            self._source,
            t=self.ended,
            probe=self._probe,
            target=self._target,
            started=round(self._recorder.since_start(self.started), 6),
            ended=round(self._recorder.since_start(self.ended), 6),
            cost=round(cost, 6),
            **self._detail,
        )
        self._recorder.samples([(self.ended, "probe_cost", self._probe, cost)])


@contextmanager
def recording(recorder: Recorder | None, probe: str, source: str, target: str) -> Iterator[Call]:
    """A call of a probe; recorded at its end, also if it is interrupted."""
    call = Call(recorder, probe, source, target)
    try:
        yield call
    except BaseException as error:
        call.result(failed=f"{type(error).__name__}: {error}")
        raise
    finally:
        call.record()
