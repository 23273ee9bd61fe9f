"""Interface counters of a node, now or as series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.measure.probes.base import Recorder, in_node, recording
from testbed.measure.sampler import Column, Counter

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.plan.types import Plan

COLUMNS: dict[Column, int] = {
    "rx_bytes": 0,
    "rx_packets": 1,
    "rx_drop": 3,
    "tx_bytes": 8,
    "tx_packets": 9,
    "tx_drop": 11,
}
"""Where each stands in /proc/net/dev; see proc(5)."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One interface's counters since it was made. A frame's bytes are counted with its Ethernet header."""

    rx_bytes: int
    rx_packets: int
    rx_drop: int
    tx_bytes: int
    tx_packets: int
    tx_drop: int

    def __sub__(self, earlier: Counters) -> Counters:
        """What was added since ``earlier``."""
        return Counters(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


def counters(lab: Lab, node: str, *, recorder: Recorder | None = None) -> Mapping[str, Counters]:
    """The counters of every interface of ``node``, by its readable name; ``lo`` included.

    Samples: ``if_rx_bytes`` and so on of ``node:interface``.
    """
    names = readable(lab.plan, node)
    with recording(recorder, "counters", node, "") as call:
        text = in_node(lab, node, lambda: Path("/proc/thread-self/net/dev").read_text())
        found = {}
        for line in text.splitlines()[2:]:
            ifname, _, values = line.rpartition(":")
            numbers = values.split()
            name = names.get(ifname.strip(), ifname.strip())
            found[name] = Counters(**{column: int(numbers[at]) for column, at in COLUMNS.items()})
        call.result(interfaces=len(found))
        if recorder is not None:
            recorder.samples(
                (call.started, f"if_{column}", f"{node}:{name}", getattr(values, column))
                for name, values in found.items()
                for column in COLUMNS
            )
    return found


def readable(plan: Plan, node: str) -> dict[str, str]:
    """Readable name of each of a node's interfaces, by the kernel's name."""
    return {link.end(node).ifname: link.end(node).interface for link in plan.links_of(node)}


def series_of(plan: Plan, node: str, interface: str | None = None) -> list[Counter]:
    """What a ``Sampler`` takes to sample all counters of one interface of ``node``, or of all its interfaces.

    The series are those of ``counters``. TestbedError if there is no such interface.
    """
    names = readable(plan, node)
    wanted = {ifname: name for ifname, name in names.items() if interface in (None, name, ifname)}
    if not wanted:
        raise TestbedError(
            f"node {node!r} has no interface {interface!r}", remedy=f"it has: {', '.join(names.values()) or 'none'}"
        )
    return [
        Counter(ifname, f"if_{column}", f"{node}:{name}", column)
        for ifname, name in wanted.items()
        for column in COLUMNS
    ]
