"""Packet captures in nodes: pcapng files that Wireshark opens, bounded in size and number, ended with the lab."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure import bpf
from testbed.measure.capturing import Order
from testbed.measure.files import give_to_invoker
from testbed.measure.pcapng import Interface
from testbed.measure.probes.base import Recorder, in_node
from testbed.measure.probes.counters import readable
from testbed.runtime.base import LAB_VARIABLE

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

FILE_BYTES = 64 << 20
"""The most that one file holds."""
FILES = 4
"""How many files are kept of one capture."""
SNAPLEN = 262144
"""The most that is kept of one packet, bytes."""
_LEAST_FILE = 4096
_PROGRAM = "testbed.measure.capturing"
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """What a capture came to."""

    node: str
    files: tuple[Path, ...]
    """Oldest first."""
    removed: int
    """Older files that had to give way to newer ones."""
    packets: int
    """Written, those in removed files included."""
    received: Mapping[str, int]
    """Packets that matched, by interface."""
    dropped: Mapping[str, int]
    """Those of them that are missing, since they could not be written fast enough."""
    interrupted: Mapping[str, int]
    """How often an interface went down or away."""
    error: str
    """Why it ended early; empty if it did not."""


def parse_place(text: str) -> tuple[str, str | None]:
    """``a:eth0`` to (``a``, ``eth0``); ``a`` alone is all its interfaces."""
    node, colon, interface = text.partition(":")
    if not node or (colon and not interface):
        raise TestbedError(f"{text!r} is no place to capture at", remedy="write NODE or NODE:INTERFACE")
    return node, interface or None


class Capture:
    """One capture, from ``start`` to ``stop``; also a context manager.

    ``file`` is the first file; later ones have a number before the suffix. With a file ``-`` all goes to the standard
    output. ``filter`` is in tcpdump's language. Packets are taken with the kernel's time stamps, outgoing ones before
    the link's delay. Large ones are seen as the kernel passes them on: several segments in one (GSO).
    """

    def __init__(
        self,
        lab: Lab,
        node: str,
        interface: str | None = None,
        *,
        file: Path | str,
        file_bytes: int = FILE_BYTES,
        files: int = FILES,
        snaplen: int = SNAPLEN,
        seconds: float | None = None,
        filter: str = "",
        recorder: Recorder | None = None,
    ) -> None:
        if file_bytes < _LEAST_FILE or files < 1 or snaplen < 1 or (seconds is not None and seconds <= 0):
            raise TestbedError(
                "these bounds leave nothing of a capture",
                remedy=f"at least {_LEAST_FILE} bytes a file, one file, one byte a packet and some time",
            )
        self._lab, self._node, self._recorder = lab, node, recorder
        interfaces = [
            {"ifname": ifname, **asdict(Interface(f"{node}:{name}", f"lab {lab.name}", mac, snaplen, filter))}
            for ifname, name, mac in _interfaces(lab, node, interface)
        ]
        self._order = Order(
            namespace=str(lab.namespace(node)),
            interfaces=interfaces,
            file=str(file),
            file_bytes=file_bytes,
            files=files,
            seconds=seconds,
            program=bpf.compile_filter(filter) if filter else [],
            comment=f"node {node} of lab {lab.name}",
        )
        self._child: subprocess.Popen[bytes] | None = None
        self._told = -1
        self._said = b""
        self._result: CaptureResult | None = None

    def start(self) -> Self:
        """Begin; from its return on nothing is missed. TestbedError if that cannot be."""
        inner, outer = os.pipe2(os.O_CLOEXEC)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, str(outer), json.dumps(asdict(self._order))],
                stdin=subprocess.PIPE,
                stdout=None if self._order.file == "-" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[outer],
                env={**os.environ, "PYTHONPATH": _where_we_are(), LAB_VARIABLE: self._lab.id},
                start_new_session=True,
            )
        finally:
            os.close(outer)
        self._told = inner
        first = self._line(_START_SECONDS)
        if first is None:
            self._end_child()
            raise WaitTimeout("the capture to begin", _START_SECONDS, "no word of it", where=f"node {self._node}")
        if not first.get("ready"):
            self._end_child()
            raise TestbedError(f"cannot capture: {first.get('error') or 'it ended'}", where=f"node {self._node}")
        return self

    def running(self) -> bool:
        """Whether it still captures."""
        return self._child is not None and self._child.poll() is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it ends by itself: its time is over, the disk is full, or the lab is down. WaitTimeout."""
        if self._child is None:
            return
        try:
            self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise WaitTimeout("the end of the capture", timeout or 0.0, "it goes on") from None

    def stop(self, timeout: float = 15.0) -> CaptureResult:
        """End, write what is left, record the event ``capture``, and say what came of it. Idle if called again."""
        if self._result is None:
            self._result = self._stopped(timeout)
            self._record(self._result)
        return self._result

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _stopped(self, timeout: float) -> CaptureResult:
        if self._child is None:
            return CaptureResult(self._node, (), 0, 0, {}, {}, {}, "never started")
        if self._child.stdin is not None:
            self._child.stdin.close()
        last = self._line(timeout)
        self._end_child()
        if last is None:
            # killed, as the lab's end does it: the files are whole up to the last fifth of a second
            first = Path(self._order.file)
            found = sorted(first.parent.glob(f"{first.stem}-[0-9]*{first.suffix}")) if self._order.file != "-" else []
            files = tuple(path for path in (first, *found) if path.is_file())
            return CaptureResult(self._node, files, 0, 0, {}, {}, {}, "it was ended from outside")
        files = tuple(Path(path) for path in last["files"])
        give_to_invoker(*files)
        return CaptureResult(
            self._node,
            files,
            last["removed"],
            last["packets"],
            last["received"],
            last["dropped"],
            last["interrupted"],
            last["error"],
        )

    def _line(self, timeout: float) -> dict[str, Any] | None:
        """The next thing that the child tells; None if it has ended without a word, or says nothing in time."""
        deadline = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                return None
            piece = os.read(self._told, 1 << 16)
            if not piece:
                return None
            self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _end_child(self) -> None:
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1)
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        os.close(self._told)
        self._told = -1

    def _record(self, result: CaptureResult) -> None:
        if self._recorder is None:
            return
        self._recorder.event(
            "capture",
            self._node,
            interfaces=[interface["name"] for interface in self._order.interfaces],
            files=[path.name for path in result.files],
            removed=result.removed,
            packets=result.packets,
            received=dict(result.received),
            dropped=dict(result.dropped),
            interrupted=dict(result.interrupted),
            error=result.error,
        )


def _where_we_are() -> str:
    """The search path of a Python that shall find this very package, whatever the current folder is."""
    import testbed

    folder = str(Path(testbed.__file__).parents[1])
    return os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def _interfaces(lab: Lab, node: str, wanted: str | None) -> list[tuple[str, str, str]]:
    """(kernel's name, readable name, hardware address) of the interfaces to capture at."""
    lab.node(node)
    names = readable(lab.plan, node)
    macs = {link.end(node).ifname: link.end(node).mac for link in lab.plan.links_of(node)}
    found = [(ifname, name, macs[ifname]) for ifname, name in names.items() if wanted in (None, name, ifname)]
    if found:
        return found
    present = in_node(lab, node, lambda: Path("/proc/thread-self/net/dev").read_text())
    others = {line.partition(":")[0].strip() for line in present.splitlines()[2:]} - names.keys()
    if wanted in others:
        return [(wanted, wanted, "")]
    known = ", ".join([*names.values(), *sorted(others)])
    if wanted is None:
        raise TestbedError(f"node {node!r} has no link", remedy=f"name an interface: {known}")
    raise TestbedError(f"node {node!r} has no interface {wanted!r}", remedy=f"it has: {known}")
