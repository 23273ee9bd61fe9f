"""The wire for the rest of the testbed: what to do when a lab's network is made.

For each link that needs the engine: ``make_end`` at both ends in place of a veth, then configure the interfaces as
ever; and ``start`` once for all of them.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pyroute2.netlink.rtnl import RTM_NEWLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

import testbed
from testbed.errors import ApplyError, WaitTimeout
from testbed.net.netlink import Request, encode
from testbed.net.wire import native, tap
from testbed.net.wire.settings import settings_of
from testbed.net.wire.state import LOG, State, TapEnd, WireLink, load
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
    """Start the wire of lab ``lab`` (its id): a supervisor and a core, which open the TAPs of ``links`` and carry
    frames from then on. ``command`` overrides which core it is.

    Returns the supervisor's process id; it ends with the lab, by ownership, or when ``folder`` is gone. ApplyError
    names links whose TAPs could not be opened, and then nothing runs; WaitTimeout if it does not come up.
    """
    State(lab, {link.name: link for link in links}).save(folder)
    return revive(folder, hang=hang, command=command)


def revive(folder: Path, *, hang: float = HANG, command: Sequence[str] | None = None) -> int:
    """Start a wire again whose supervisor was killed, with the links as they were last. As ``start`` else."""
    lab = load(folder).lab
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    path = os.pathsep.join(filter(None, (str(Path(testbed.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    words = [str(folder), str(theirs), str(hang), *(command or native.command())]
    try:
        with (folder / LOG).open("ab") as log:
            starter = subprocess.Popen(
                [sys.executable, "-m", "testbed.net.wire.supervisor", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs],
                cwd="/",
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
