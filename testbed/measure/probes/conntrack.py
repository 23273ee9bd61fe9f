"""Connections that a node's kernel tracks, for address translation or a stateful filter."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.lab.programs import SEARCH_PATH
from testbed.measure.probes.base import Recorder, in_node, recording

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")
_LIST = Path("/proc/thread-self/net/nf_conntrack")
_KEYS = ("src", "dst", "sport", "dport")


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a tracked connection; ports are None for protocols without."""

    source: str
    target: str
    source_port: int | None
    target_port: int | None


@dataclass(frozen=True, slots=True)
class Connection:
    """A tracked connection. ``reply`` is where answers are expected from and to: where it is not ``original`` turned
    round, addresses are translated."""

    protocol: str
    state: str
    """Of TCP: ``ESTABLISHED`` and so on; else empty."""
    timeout: int
    """Seconds until it is forgotten."""
    original: Flow
    reply: Flow
    mark: int = 0

    @property
    def translated(self) -> bool:
        """Whether its addresses or ports are translated."""
        turned = Flow(self.reply.target, self.reply.source, self.reply.target_port, self.reply.source_port)
        return self.original != turned


def conntrack_count(lab: Lab, node: str, *, recorder: Recorder | None = None) -> int:
    """How many connections ``node`` tracks. Samples: ``conntrack``. TestbedError where the kernel cannot."""
    with recording(recorder, "conntrack", node, "") as call:
        try:
            count = int(in_node(lab, node, _COUNT.read_text))
        except FileNotFoundError:
            raise _untracked(node) from None
        call.result(count=count)
        if recorder is not None:
            recorder.samples([(call.started, "conntrack", node, count)])
    return count


def conntrack(lab: Lab, node: str, *, recorder: Recorder | None = None) -> list[Connection]:
    """The connections that ``node`` tracks. TestbedError where the kernel cannot list them."""
    with recording(recorder, "conntrack", node, "") as call:
        try:
            text = in_node(lab, node, _LIST.read_text)
        except FileNotFoundError:
            text = _by_program(lab, node)
        found = [parse(line) for line in text.splitlines() if line.strip()]
        call.result(count=len(found))
        if recorder is not None:
            recorder.samples([(call.started, "conntrack", node, len(found))])
    return found


def _by_program(lab: Lab, node: str) -> str:
    program = shutil.which("conntrack", path=SEARCH_PATH)
    if program is None or not in_node(lab, node, _COUNT.exists):
        raise _untracked(node)
    command = [program, "-L", "-o", "extended"]
    done = in_node(lab, node, lambda: subprocess.run(command, capture_output=True, text=True, timeout=30, check=False))
    if done.returncode:
        raise TestbedError(f"conntrack: {done.stderr.strip()}", where=f"node {node}")
    return done.stdout


def _untracked(node: str) -> TestbedError:
    return TestbedError(
        "connections cannot be listed: this kernel has neither /proc/net/nf_conntrack nor the program conntrack to ask",
        where=f"node {node}",
        remedy="load the module nf_conntrack; where the file is still not there, install the package conntrack",
    )


def parse(line: str) -> Connection:
    """A line of /proc/net/nf_conntrack, which is also one of ``conntrack -L -o extended``."""
    words = line.split()
    pairs = [word.partition("=") for word in words if "=" in word]
    # the original direction's four keys come first, then the reply's
    directions: list[dict[str, str]] = [{}, {}]
    for key, _, value in pairs:
        if key in _KEYS:
            side = directions[0] if key not in directions[0] else directions[1]
            side[key] = value
    marks = [int(value) for key, _, value in pairs if key == "mark"]
    state = words[5] if len(words) > 5 and words[5].isupper() and "=" not in words[5] else ""
    return Connection(
        protocol=words[2],
        state="" if state.startswith("[") else state,
        timeout=int(words[4]) if words[4].isdecimal() else 0,
        original=_flow(directions[0]),
        reply=_flow(directions[1]),
        mark=marks[0] if marks else 0,
    )


def _flow(found: dict[str, str]) -> Flow:
    ports = [int(found[key]) if key in found else None for key in ("sport", "dport")]
    return Flow(found.get("src", ""), found.get("dst", ""), ports[0], ports[1])
