"""The lab of the fault tests, and what looks at it from outside, without the product's own checks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import await_true

from testbed.lab.lab import Lab
from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.plan.types import Plan
from testbed.runtime.base import start_time

CLOCK = """
import os, time
while True:
    open("new", "w").write(f"{time.time()} {time.monotonic()}")
    os.replace("new", "clock")
    time.sleep(0.02)
"""
BUSY = "import os, time\nwhile True: os.path.exists('go') or time.sleep(0.02)"
"""Busy while there is a file ``go`` in its folder."""
GREEDY = """
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: held.append(bytearray(os.urandom(1 << 20) * 64)))
held = []
while True: time.sleep(1)
"""
POLITE = 'trap "echo told >> told; exit 0" TERM; while :; do sleep 0.05; done'


def topology() -> Plan:
    """Hosts a, b and c on the router core, d and e on a switch beside it."""
    services = {
        "clock": {"command": ["python3", "-c", CLOCK]},
        "polite": {"command": ["sh", "-c", POLITE]},
    }
    made, problems = expand(
        Topology.model_validate(
            {
                "name": "faults",
                "nodes": {
                    "a": {"services": services},
                    "b": {"services": {"clock": services["clock"]}},
                    "c": {"services": {"web": {"command": ["python3", "-m", "http.server", "8080"]}}},
                    "d": {
                        "services": {
                            "busy": {"command": ["python3", "-c", BUSY]},
                            "greedy": {"command": ["python3", "-c", GREEDY]},
                        }
                    },
                    "e": {"services": {"deaf": {"command": ["sh", "-c", 'trap "" TERM; while :; do sleep 1; done']}}},
                    "sw": {"kind": "switch"},
                },
                "links": [
                    {"endpoints": ["a", "core"], "rate": "50mbit"},
                    ["b", "core"],
                    ["c", "core"],
                    ["sw", "core"],
                    ["d", "sw"],
                    ["e", "sw"],
                ],
            }
        )
    )
    assert problems == []
    return made


class Watch:
    """Looks at a lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def address(self, node: str) -> str:
        """First address of a node."""
        return str(self.lab.plan.address(node))

    def inside(self, node: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of the host in a node's network."""
        enter = ["nsenter", f"--net={self.lab.namespace(node)}", "--"]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=30, check=False)

    def reaches(self, source: str, target: str, *options: str) -> bool:
        """Whether one of three echo requests, 0.1 s apart, is answered."""
        where = target if "." in target else self.address(target)
        return self.inside(source, "ping", "-n", "-c3", "-i0.1", "-W0.5", *options, where).returncode == 0

    @contextmanager
    def no_loss(self, source: str, target: str) -> Iterator[None]:
        """What happens in the block loses no echo request or answer, one being sent every 10 ms."""
        enter = ["nsenter", f"--net={self.lab.namespace(source)}", "--"]
        command = [*enter, "ping", "-n", "-D", "-O", "-i0.01", "-W1", target if "." in target else self.address(target)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ping:
            assert ping.stdout is not None
            lines = [ping.stdout.readline(), ping.stdout.readline()]  # the head, and the first answer
            try:
                yield
                end = time.time() + 0.1
                while not (stamp := re.match(r"\[([0-9.]+)\] \d+ bytes", lines[-1])) or float(stamp[1]) < end:
                    lines.append(ping.stdout.readline())
                    assert len(lines) < 10_000, "no answer comes any more"
            finally:
                ping.kill()
        answered = [int(match[1]) for line in lines if (match := re.search(r"bytes from .*icmp_seq=(\d+)", line))]
        lost = sorted(set(range(1, answered[-1] + 1)) - set(answered))
        assert not lost, f"lost: {lost} of {answered[-1]}"

    def pid(self, node: str, service: str) -> int:
        """Pid of a program's latest process."""
        return self.lab.services(node)[service][0].pid

    def runs(self, node: str, service: str) -> bool:
        """Whether it runs."""
        return start_time(self.pid(node, service)) is not None

    def is_off(self, node: str, wall: float, steady: float = 0.0) -> bool:
        """Whether the wall clock and the monotonic clock that the node's program sees are off ours by these seconds.

        What it writes for the second time from now on, it has read between now and our seeing that, however busy the
        machine is.
        """
        path = self.lab.node_folder(node) / "clock"
        begun, seen = (time.time(), time.monotonic()), path.read_text()
        for _ in range(2):
            await_true(lambda: path.read_text() != seen, f"the program of {node} to write the time")  # noqa: B023
            seen = path.read_text()
        ended, read = (time.time(), time.monotonic()), [float(word) for word in seen.split()]
        return all(
            at - after - 0.01 <= shift <= at - before + 0.01
            for at, shift, before, after in zip(read, (wall, steady), begun, ended, strict=True)
        )

    def state(self, pid: int) -> str:
        """State letter of a process."""
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    @contextmanager
    def busy(self, node: str) -> Iterator[int]:
        """The node's busy program is, inside the block; its pid."""
        go = self.lab.node_folder(node) / "go"
        go.touch()
        try:
            yield self.pid(node, "busy")
        finally:
            go.unlink()

    def cpu_share(self, pid: int, seconds: float = 1.0) -> float:
        """Share of one processor that a process gets."""

        def used() -> float:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before, began = used(), time.monotonic()
        time.sleep(seconds)
        return (used() - before) / (time.monotonic() - began)

    def tables(self, node: str) -> list[str]:
        """The nft tables of a node."""
        return [line for line in self.inside(node, "nft", "list", "tables").stdout.splitlines() if line]

    def links(self, node: str) -> dict[str, dict[str, object]]:
        """The interfaces of a node by name, as ip shows them."""
        shown = json.loads(self.inside(node, "ip", "-json", "-s", "-s", "link").stdout)
        return {link["ifname"]: link for link in shown}

    def carrier_changes(self, node: str, interface: str) -> int:
        """How often an interface has lost or got its carrier."""
        stats: dict[str, dict[str, int]] = self.links(node)[interface]["stats64"]  # type: ignore[assignment]
        return stats["tx"]["carrier_changes"]

    def routes(self, node: str) -> list[str]:
        """All of a node's routes and neighbours."""
        lines = self.inside(node, "ip", "route", "show", "table", "all").stdout.splitlines()
        return sorted(lines + self.inside(node, "ip", "neigh").stdout.splitlines())

    def get(self, node: str, target: str, port: int = 8080) -> tuple[int, float]:
        """Status of an HTTP request (0: none came) and seconds to the first byte of the answer."""
        url = f"http://{self.address(target)}:{port}/"
        done = self.inside(
            node, "curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code} %{time_starttransfer}", url
        )
        status, seconds = done.stdout.split()
        return int(status), float(seconds)

    def events(self, **wanted: object) -> list[dict[str, object]]:
        """Events of the lab that have these values."""
        lines = (self.lab.folder / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [event for event in events if all(event.get(key) == value for key, value in wanted.items())]
