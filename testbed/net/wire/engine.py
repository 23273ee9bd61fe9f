"""The wire for the rest of the testbed: what to do when a lab's network is made.

For each link that needs the engine: ``make_end`` at both ends in place of a veth, then configure the interfaces as
ever; and ``start`` once for all of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyroute2.netlink.rtnl import RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

import testbed
from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.net.netlink import Request, encode
from testbed.net.wire import native, tap
from testbed.net.wire.charge import NONE, Charge, start_guard
from testbed.net.wire.control import Wire
from testbed.net.wire.settings import settings_of
from testbed.net.wire.state import LOCK, LOG, State, TapEnd, WireLink, append_event, load
from testbed.plan.types import End, Link

LAB_VARIABLE = "TESTBED_LAB"
HANG = 2.0
"""Seconds without an answer after which the core counts as hung and is replaced."""
START_TIMEOUT = 20.0


def wire_link(link: Link, path_of: Callable[[str], Path], seed: int) -> WireLink:
    """A link of a plan as the wire knows it. ``path_of`` gives each node's namespace, ``seed`` is the plan's."""
    a, b = (TapEnd(str(path_of(end.node)), end.ifname) for end in (link.a, link.b))
    return WireLink(link.name, a, b, seed, settings_of(link.forward), settings_of(link.backward))


def make_end(end: End) -> None:
    """Make the TAP of one end in the calling thread's namespace. ApplyError if the kernel cannot."""
    try:
        tap.create(end.ifname)
    except ApplyError as error:
        raise ApplyError(error.what, where=f"node {end.node}", remedy=error.remedy) from error


def end_settings(index: int, end: End, mtu: int) -> Request:
    """Hardware address, MTU and queue of a TAP that ``make_end`` has made; to be applied before it is set up."""
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_ADDRESS", end.mac), ("IFLA_MTU", mtu), ("IFLA_TXQLEN", tap.QUEUE)]
    return encode(f"hardware address and MTU of {end.interface}", message, RTM_NEWLINK)


def start(
    folder: Path,
    lab: str,
    links: Iterable[WireLink],
    *,
    hang: float = HANG,
    command: Sequence[str] | None = None,
) -> int:
    """Start the wire of lab ``lab`` (its id): guard, supervisor and core, which open the TAPs of ``links`` and carry
    frames from then on. ``command`` overrides which core it is.

    Returns the supervisor's process id; it ends with the lab, by ownership, or when ``folder`` is gone. ApplyError
    names links whose TAPs could not be opened, and then nothing runs; WaitTimeout if it does not come up.
    """
    State(lab, {link.name: link for link in links}).save(folder)
    with _lock(folder) as lock:
        if lock is None:
            raise ApplyError(f"another wire runs in {folder}")
        return _launch(folder, lock, NONE, hang, command)


def revive(folder: Path, *, hang: float = HANG, command: Sequence[str] | None = None) -> bool:
    """Start a wire again whose guard and supervisor were killed, with the links as they were last; whether that was
    so. Links that cannot be carried are closed. Raises as ``start`` else."""
    try:
        with _lock(folder, make=False) as lock:
            if lock is None:
                return False
            append_event(folder, "wire-died", pid=None, how="guard and supervisor were gone")
            _launch(folder, lock, time.monotonic(), hang, command)
            return True
    except FileNotFoundError:
        return False  # there is none


def connect(folder: Path) -> Wire:
    """A connection to the wire, also while its guard brings it back. WaitTimeout if it does not come back, TestbedError
    if there is none."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return Wire(folder)
        except TestbedError as error:
            if not is_watched(folder):
                raise
            if time.monotonic() > deadline:
                raise WaitTimeout("the wire to be back", START_TIMEOUT, error.what) from error
        time.sleep(0.02)


def exists(folder: Path) -> bool:
    """Whether the lab has had a wire, dead or alive."""
    return (folder / LOCK).exists()


def is_watched(folder: Path) -> bool:
    """Whether a guard or a supervisor is there, which brings back the rest."""
    try:
        with _lock(folder, make=False) as lock:
            return lock is None
    except FileNotFoundError:
        return False


@contextmanager
def _lock(folder: Path, *, make: bool = True) -> Iterator[int | None]:
    """The wire's lock, a descriptor; None if a guard or a supervisor has it. Who inherits the descriptor has it then.
    FileNotFoundError if there has never been one, and none is to be made."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield fd
    finally:
        os.close(fd)


def _launch(folder: Path, lock: int, died: float, hang: float, command: Sequence[str] | None) -> int:
    """Start guard, supervisor and core; the supervisor's process id."""
    lab = load(folder).lab
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    path = os.pathsep.join(filter(None, (str(Path(testbed.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    it = Charge(folder, hang, died, theirs, lock, NONE, NONE, tuple(command or native.command()))
    try:
        with (folder / LOG).open("ab") as log:
            starter = start_guard(
                it,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, LAB_VARIABLE: lab},
                start_new_session=True,
            )
        os.close(theirs)
        theirs = -1
        line = _line(ours, folder / LOG)
        starter.wait()
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    word = json.loads(line)
    if "error" in word:
        raise ApplyError(word["error"], where="wire")
    pid: int = word["pid"]
    return pid


def _line(fd: int, log: Path) -> bytes:
    """One line from a pipe; WaitTimeout, or ApplyError with the last words of the log if it ends without one."""
    received = b""
    deadline = time.monotonic() + START_TIMEOUT
    while not received.endswith(b"\n"):
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise WaitTimeout("the wire to start", START_TIMEOUT, log.read_text()[-500:] or "nothing")
        data = os.read(fd, 65536)
        if not data:
            raise ApplyError(f"the wire did not start: {log.read_text()[-500:].strip()}")
        received += data
    return received
