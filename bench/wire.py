"""The userspace wire: how exact, how fast, and how soon it is back. Details go to standard error."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.figure import Figure
from bench.wire_load import Carried, busy_loops, many_flows, one_flow, one_way, small_packets
from bench.wire_world import World, pair, star

RUNS = 3
SECONDS = 3.0
DELAY_MS = 25.0
LINKS = 40
BIG_BUFFERS = ("net.ipv4.tcp_rmem=4096 131072 67108864", "net.ipv4.tcp_wmem=4096 131072 67108864")
"""So that the window is not what limits a flow: 10 ms of 5 Gbit/s are 6 MB, the default maximum."""


def measure(name: str) -> Figure:
    """The benchmark called ``name``."""
    unit, target, work = CASES[name]
    return Figure(name, unit, target, tuple(work()))


def say(text: str) -> None:
    """Tell what is behind a figure."""
    print(f"  {text}", file=sys.stderr, flush=True)


def accuracy() -> list[float]:
    """99th percentile of the one-way error, 40 delayed links, with four busy loops beside them."""
    return [errors[int(0.99 * len(errors))] for errors in _errors(4)]


def accuracy_median() -> list[float]:
    """Median one-way error of 40 delayed links on a machine that has nothing else to do."""
    return [statistics.median(errors) for errors in _errors(0)]


def _errors(loops: int) -> list[list[float]]:
    found = []
    with World(star(LINKS, delay=f"{DELAY_MS}ms")) as world, busy_loops(loops):
        for _ in range(RUNS):
            delays = one_way(world, [f"h{number}" for number in range(1, LINKS + 1)], SECONDS, 1600)
            errors = sorted(abs(delay - DELAY_MS) for delay in delays)
            marks = {share: round(errors[int(share * (len(errors) - 1))], 3) for share in (0.5, 0.9, 0.99, 1.0)}
            say(f"{len(errors)} packets, {loops} busy loops, error in ms by share: {marks}; least {min(delays):.3f} ms")
            found.append(errors)
    return found


def throughput() -> list[float]:
    """Gbit/s of one TCP flow over a link of 5 ms each way."""
    with World(pair(delay="5ms")) as world:
        for node in "ab":
            world.run(node, "sysctl", "-w", *BIG_BUFFERS)
        return [_told(one_flow(world, "a", "b", SECONDS)).bytes * 8 / SECONDS / 1e9 for _ in range(RUNS)]


def packets() -> list[float]:
    """Packets of 64 bytes a second that the wire carries when 110 000 are offered."""
    with World(pair(delay="5ms")) as world:
        carried = [_told(small_packets(world, "a", "b", SECONDS, 110_000)) for _ in range(RUNS)]
        return [one.frames / one.seconds for one in carried]


def aggregate() -> list[float]:
    """MB/s from end to end in 40 flows over 80 delayed links, each flow over two of them, when 100 are offered."""
    with World(star(80, delay="10ms")) as world:
        pairs = [(f"h{number}", f"h{number + 40}") for number in range(1, 41)]
        for rate in (20e6, 50e6):
            _told(many_flows(world, pairs, SECONDS, int(rate), 4000))
        carried = [_told(many_flows(world, pairs, SECONDS, int(100e6), 4000)) for _ in range(RUNS)]
        return [one.bytes / 2 / one.seconds / 1e6 for one in carried]


def _told(carried: Carried) -> Carried:
    say(carried.text())
    return carried


def restart() -> list[float]:
    """Seconds from the death of a core that carries 80 links to the next one that carries them."""
    with World(star(80, delay="10ms")) as world:
        for count in range(1, RUNS + 1):
            with world.wire() as wire:
                pid = wire.status().pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            while len(_events(world, "wire-restarted")) < count:
                time.sleep(0.01)
        return [event["seconds"] for event in _events(world, "wire-restarted")]


def _events(world: World, kind: str) -> list[dict[str, Any]]:
    lines = (world.folder / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


CASES: dict[str, tuple[str, float, Callable[[], list[float]]]] = {
    "wire-accuracy": ("ms", 1.0, accuracy),
    "wire-accuracy-median": ("ms", 0.2, accuracy_median),
    "wire-throughput": ("Gbit/s", 5.0, throughput),
    "wire-packets": ("packets/s", 100_000, packets),
    "wire-aggregate": ("MB/s", 100.0, aggregate),
    "wire-restart": ("s", 1.0, restart),
}
"""Unit, target and work of each benchmark."""
