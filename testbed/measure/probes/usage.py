"""CPU time and memory of whole nodes: the sum over all processes in a node, whoever started them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.lab.ownership import ancestry
from testbed.measure.probes.base import Recorder, recording
from testbed.measure.sampler import Row

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node's processes used. Memory that several share counts once for each."""

    processes: int
    cpu_seconds: float
    """Of those that live, since each one's start."""
    rss_bytes: int


def usage(lab: Lab, node: str, *, recorder: Recorder | None = None) -> Usage:
    """What the processes of ``node`` use now. Samples: ``node_cpu_seconds`` and ``node_rss_bytes``."""
    lab.node(node)
    with recording(recorder, "usage", node, "") as call:
        reader = UsageReader(lab, [node])
        rows = list(reader.take())
        found = reader.last[node]
        call.result(processes=found.processes, cpu_seconds=found.cpu_seconds, rss_bytes=found.rss_bytes)
        if recorder is not None:
            recorder.samples(rows)
    return found


class UsageReader:
    """Reads what nodes use, again and again; a ``Sampler`` takes it as a source.

    ``node_cpu_seconds`` never falls: the time of a process that has ended stays in it, as of its last reading.
    """

    def __init__(self, lab: Lab, nodes: Sequence[str]) -> None:
        self._nodes = {lab.namespace(node).stat().st_ino: node for node in nodes}
        self._cpu: dict[str, dict[tuple[int, int], float]] = {node: {} for node in nodes}
        self.last: Mapping[str, Usage] = {}
        """The last reading, of living processes alone."""

    def take(self) -> Iterator[Row]:
        """Rows of samples as of now."""
        spared = ancestry(os.getpid())
        counts, resident = dict.fromkeys(self._cpu, 0), dict.fromkeys(self._cpu, 0)
        now = time.monotonic()
        spent = dict.fromkeys(self._cpu, 0.0)
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) in spared:
                continue
            try:
                node = self._nodes.get(os.stat(f"{entry.path}/ns/net").st_ino)
                if node is None:
                    continue
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                pages = int(Path(entry.path, "statm").read_text().split()[1])
            except (OSError, IndexError):
                continue  # it ended while we looked
            cpu = (int(fields[11]) + int(fields[12])) / _TICKS
            self._cpu[node][int(entry.name), int(fields[19])] = cpu
            counts[node] += 1
            spent[node] += cpu
            resident[node] += pages * _PAGE
        self.last = {node: Usage(counts[node], spent[node], resident[node]) for node in self._cpu}
        for node, found in self.last.items():
            yield now, "node_cpu_seconds", node, sum(self._cpu[node].values())
            yield now, "node_rss_bytes", node, float(found.rss_bytes)
