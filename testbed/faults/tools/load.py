"""Floods: helpers in several nodes that open connections to one address, and the proof that they do."""

from __future__ import annotations

import socket
import struct
import time
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from testbed.errors import TestbedError
from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeNames, PerSecond, Port, Target, is_node, limits
from testbed.faults.tools import helpers
from testbed.model.quantities import Duration, format_duration_us
from testbed.plan.types import Address

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_ESTABLISHED = "01"
_TO_BEGIN = 10.0


class Flood(Fault):
    """Base of floods. They end by themselves when their time is over, whatever has become of whoever began them."""

    nodes: NodeNames
    target: Annotated[Target, Field(description="Where to: a node or an address.")]
    port: Port
    count: Annotated[int, Field(strict=True, ge=1, le=10_000, description="Connections from each node in all.")] = 1000
    rate: Annotated[PerSecond, Field(description="New connections from each node.")] = 100.0
    duration: Annotated[
        Duration,
        limits(format_duration_us, 100_000, 3_600_000_000),
        Field(description="After this it ends, at most 1h."),
    ] = 10_000_000

    def seconds_between(self) -> float:
        """Seconds between two header lines of a request that never ends; 0: nothing is sent."""
        return 0.0

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Start a helper in each node."""
        job = {
            "address": str(self._address(lab)),
            "port": self.port,
            "count": self.count,
            "rate": self.rate,
            "seconds": self.duration / 1e6,
            "interval": self.seconds_between(),
        }
        for node in self.nodes:
            helpers.start(lab, memory, "flood", job, node=node)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """From every node a connection is open; the kernel's own list of them is asked."""
        deadline = time.monotonic() + _TO_BEGIN
        while True:
            running = helpers.find(lab, memory)
            counts = [_connections(pid, self._address(lab), self.port) for pid in running]
            if len(counts) >= len(self.nodes) and all(counts):
                return f"{sum(counts)} connections to {self.target} port {self.port} are open"
            if len(running) < len(self.nodes) or time.monotonic() > deadline:
                raise FaultError(
                    f"{len(running)} of {len(self.nodes)} floods run, with {counts} open connections to {self.target} "
                    f"port {self.port}: {helpers.last_words(lab, memory)}"
                )
            time.sleep(0.02)

    def heal(self, lab: Lab, memory: Memory) -> None:
        """End the helpers; the kernel closes their connections."""
        helpers.end(lab, memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """No helper is left."""
        helpers.verify_gone(lab, memory)
        return "no flood runs"

    def _address(self, lab: Lab) -> Address:
        if is_node(self.target):
            try:
                return lab.plan.address(self.target)
            except KeyError:
                raise FaultError(f"node {self.target} has no address") from None
        try:
            return ip_address(self.target)
        except ValueError:
            raise TestbedError(f"{self.target} is not one address", remedy="name a node or an address") from None


def _connections(pid: int, address: Address, port: int) -> int:
    """How many established TCP connections to an address there are in a process's network namespace (proc(5))."""
    if address.version == 4:
        there, table = f"{struct.unpack('=I', socket.inet_aton(str(address)))[0]:08X}", "tcp"
    else:
        there = "".join(f"{word:08X}" for word in struct.unpack("=4I", address.packed))
        table = "tcp6"
    try:
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return 0
    wanted = f"{there}:{port:04X}"
    return sum(1 for line in lines if line.split()[2:4] == [wanted, _ESTABLISHED])
