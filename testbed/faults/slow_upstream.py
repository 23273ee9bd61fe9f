"""A server that takes its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, Port, limits
from testbed.faults.tools import upstream
from testbed.model.quantities import Duration, format_duration_us

if TYPE_CHECKING:
    from testbed.lab.lab import Lab


class SlowUpstream(Fault):
    """Whatever new clients send to the TCP port reaches the server so much later, each request of a connection too.

    A proxy in the node does it, so the server sees the node's own address as the client's.
    """

    kind: ClassVar[str] = "slow-upstream"
    node: NodeName
    port: Port
    delay: Annotated[
        Duration, limits(format_duration_us, 1000), Field(description="How much later requests arrive, at least 1ms.")
    ]

    def claims(self, lab: Lab) -> set[str]:
        """The way to the port."""
        return {f"port {self.port} of {self.node}"}

    def remember(self, lab: Lab) -> Memory:
        """A free port for the proxy."""
        return upstream.remember(lab, self.node, self.port)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Insert the proxy."""
        upstream.insert(lab, self.node, self.port, memory, {"delay": self.delay / 1e6})

    def verify(self, lab: Lab, memory: Memory) -> str:
        """An HTTP request takes so long."""
        upstream.verify(lab, self.node, memory)
        _, seconds = upstream.request(lab, self.node, self.port, self.delay / 1e6 + 10)
        if seconds < self.delay / 1e6:
            raise FaultError(f"a request was answered after {seconds:.3f} s")
        return f"a request was answered after {seconds:.3f} s"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the proxy away."""
        upstream.withdraw(lab, self.node, memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """It is gone."""
        return upstream.verify_withdrawn(lab, self.node, memory)
