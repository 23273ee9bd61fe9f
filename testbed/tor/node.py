"""One tor of a lab: its files, its process, its control connection."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.lab.lab import Lab
from testbed.plan.types import Service
from testbed.runtime.base import UNPRIVILEGED_ID, Process, log_tail
from testbed.tor.control import Control, ControlError, try_connect
from testbed.tor.torrc import Options, Paths, render

SPAWNERS = 8
"""Programs started at a time."""
SOCKET_PATH_BYTES = 107
"""Longest path of a unix socket (unix(7), less the closing NUL)."""
_LEVEL = re.compile(r"^\S+ \S+ \S+ \[(warn|err)\] (.*)$", re.MULTILINE)


@dataclass
class TorNode:
    """A tor and what is known of it in this process."""

    name: str
    role: str
    address: str
    paths: Paths
    process: Process | None = None
    control: Control | None = field(default=None, repr=False)

    def connected(self) -> bool:
        """Whether there is a control connection, making one if tor listens by now."""
        if self.control is None:
            self.control = try_connect(self.name, self.paths.control)
        return self.control is not None

    def require(self) -> Control:
        """The control connection; ControlError when tor does not listen."""
        if self.control is None:
            self.control = open_control(self.name, self.paths.control)
        return self.control

    def close(self) -> None:
        """End the control connection."""
        if self.control is not None:
            self.control.close()
            self.control = None


def open_control(node: str, path: Path) -> Control:
    """A control connection to a tor that is up; TestbedError if it is not."""
    try:
        return Control(node, path)
    except OSError as error:
        raise TestbedError(
            f"tor cannot be reached: {path}: {error}", where=node, remedy="is the lab up, and this node started?"
        ) from error


def make_node(lab: Lab, name: str) -> TorNode:
    """The tor that belongs on a node of the plan; nothing is started."""
    node = lab.plan.node(name)
    return TorNode(name, node.role, str(lab.plan.address(name)), Paths(lab.node_folder(name)))


def prepare(node: TorNode, options: Options, files: Mapping[str, bytes]) -> None:
    """Write a node's torrc and an otherwise empty DataDirectory with ``files``, owned by the unprivileged user.

    Whatever an earlier tor left there is removed: a fresh start, as of a new machine.
    """
    paths = node.paths
    if len(os.fsencode(paths.control)) > SOCKET_PATH_BYTES:
        raise TestbedError(
            f"{paths.control} is too long for a socket ({SOCKET_PATH_BYTES} bytes)",
            where=node.name,
            remedy="set TESTBED_STATE to a shorter path, or give the node a shorter name",
        )
    shutil.rmtree(paths.data, ignore_errors=True)
    _own(paths.empty, b"")
    _own(paths.torrc, render(options).encode())
    _folder(paths.data)
    for name, content in files.items():
        path = paths.data / name
        if not path.parent.exists():
            _folder(path.parent)
        _own(path, content)


def rewrite(node: TorNode, option: str, value: str) -> None:
    """Change an option in a node's torrc, so that a reload of it does not undo what was set through the socket."""
    lines = node.paths.torrc.read_text().splitlines()
    changed = [f"{option} {value}" if line.split(" ", 1)[0] == option else line for line in lines]
    node.paths.torrc.write_text("\n".join(changed) + "\n")


def _folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


def _own(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


def start(lab: Lab, nodes: Iterable[TorNode]) -> None:
    """Start the tor of each node, several at a time. An error says what tor itself said."""

    def one(node: TorNode) -> None:
        argv = ("tor", "-f", "${dir}/torrc", "--defaults-torrc", "${dir}/empty")
        node.paths.log.unlink(missing_ok=True)
        node.close()
        try:
            node.process = lab.spawn(node.name, Service(name="tor", argv=argv))
        except ApplyError as error:
            if not _complaints(node.paths.log):
                raise
            raise ApplyError(_last_words(node), where=node.name, remedy=_torrc_line(node)) from error

    with ThreadPoolExecutor(SPAWNERS) as pool:
        list(pool.map(one, nodes))


def listens(path: Path) -> bool:
    """Whether somebody listens at a unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def check_alive(nodes: Iterable[TorNode]) -> None:
    """ApplyError for the first tor that has ended, with its own last words and the line of the torrc it is about."""
    for node in nodes:
        if node.process is not None and not node.process.alive():
            raise ApplyError(_last_words(node), where=node.name, remedy=_torrc_line(node))


def blame(error: ControlError, nodes: Iterable[TorNode]) -> TestbedError:
    """What to raise for a control connection that failed: how its tor ended, where that is the reason."""
    for node in nodes:
        if node.name == error.where and node.process is not None:
            try:
                node.process.wait_gone(2)  # its sockets close a moment before it is gone
            except WaitTimeout:
                continue
            return ApplyError(_last_words(node), where=node.name, remedy=_torrc_line(node))
    return error


def stop(nodes: Sequence[TorNode], *, number: int, timeout: float = 10) -> None:
    """Send a signal to the tor of each node and wait until all have ended."""
    for node in nodes:
        node.close()
        if node.process is not None:
            node.process.signal(number)
    deadline = time.monotonic() + timeout
    for node in nodes:
        if node.process is not None:
            node.process.wait_gone(max(0.1, deadline - time.monotonic()))
            node.process = None


def stuck(awaited: str, seconds: float, nodes: Sequence[TorNode], seen: str) -> WaitTimeout:
    """The error for a wait that did not end for ``nodes``; it shows the end of the first one's log."""
    names = ", ".join(node.name for node in nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
    text = f"{seen}; not there: {names}" if nodes else seen
    if nodes:
        text += f"\n  last words of {nodes[0].name}:\n" + _indent(log_tail(nodes[0].paths.log, 8))
    return WaitTimeout(awaited, seconds, text, where="tor")


def _complaints(log: Path) -> list[str]:
    try:
        return [found.group(2) for found in _LEVEL.finditer(log.read_text(errors="replace"))]
    except OSError:
        return []


def _last_words(node: TorNode) -> str:
    complaints = [line for line in _complaints(node.paths.log) if not line.startswith("Reading config failed")]
    status = node.process.popen.returncode if node.process and node.process.popen else None
    how = "" if status is None else f" with status {status}" if status >= 0 else f" by signal {-status}"
    if complaints:
        return f"tor ended{how}: {complaints[-1]}"
    return f"tor ended{how}; its last words:\n" + _indent(log_tail(node.paths.log, 8))


def _torrc_line(node: TorNode) -> str:
    """The line of the torrc that tor's last complaint names, if it names one."""
    complaints = " ".join(_complaints(node.paths.log)[-2:])
    try:
        lines = node.paths.torrc.read_text().splitlines()
    except OSError:
        return ""
    words = {word.lower() for word in re.findall(r"\w+", complaints)}
    for number, line in enumerate(lines, 1):
        option = line.split(" ", 1)[0]
        if option.lower() in words and option not in ("Log", "Address"):
            return f"line {number} of its torrc: `{line}`"
    return ""


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
