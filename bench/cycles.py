"""Two hundred labs of ten nodes, up and down in one process: what does each leave behind?"""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

from bench.figure import Figure
from testbed.lab import ownership
from testbed.lab.state import lab_id

CYCLES = 200
WARM = 10
TOPOLOGY = """\
name: cycles
nodes:
  a: {services: {nap: {command: [sleep, "300"]}}}
  b:
  c:
  d:
  e:
  f:
  g:
  h:
  i:
links:
  - {endpoints: [a, core], rate: 10mbit}
  - {endpoints: [b, core], delay: 1ms}
  - [c, core]
  - [d, core]
  - [e, core]
  - [f, core]
  - [g, core]
  - [h, core]
  - [i, core]
"""


def measure(name: str) -> Figure:
    """How many file descriptors, namespaces, mounts, processes and threads more there are after the cycles than before
    them, and pages of memory beyond 4 MiB; 0 if nothing grows."""
    from testbed.lab.up import up
    from testbed.plan.load import load_text

    _, plan = load_text(TOPOLOGY)
    for _ in range(WARM):  # caches and imports fill up
        up(plan).down()
    before, memory = count(), _resident()
    for _ in range(CYCLES):
        up(plan).down()
    after = count()
    grown = sum(max(0, after[what] - before[what]) for what in before)
    pages = max(0, _resident() - memory - 4 * 2**20) // resource.getpagesize()
    return Figure(name, "things left", 0, (float(grown + pages),))


def count() -> dict[str, int]:
    """What could leak."""
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "namespaces": len(ownership.namespaces(lab_id("cycles"))),
        "mounts": sum(lab_id("cycles") in line for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "processes": len(_children()),
        "threads": len(os.listdir("/proc/self/task")),
    }


def _children() -> list[str]:
    """Children of this process, zombies too."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
