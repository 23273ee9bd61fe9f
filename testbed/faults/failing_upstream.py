"""A web server that answers with errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault, FaultError, Memory
from testbed.faults.fields import NodeName, Port, limits
from testbed.faults.tools import upstream
from testbed.model.quantities import Fraction, format_fraction

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_TRIALS = 20
"""How many answers to wait for if each had a share of 100%."""


class FailingUpstream(Fault):
    """New HTTP connections to the port get an error as answer, or a share of them. The others are passed on."""

    kind: ClassVar[str] = "failing-upstream"
    node: NodeName
    port: Port
    status: Annotated[int, Field(strict=True, ge=400, le=511, description="Status of the answers.")] = 503
    share: Annotated[
        Fraction, limits(format_fraction, 0.01), Field(description="Share of connections that fail, at least 1%.")
    ] = 1.0

    def claims(self, lab: Lab) -> set[str]:
        """The way to the port."""
        return {f"port {self.port} of {self.node}"}

    def remember(self, lab: Lab) -> Memory:
        """A free port for the proxy."""
        return upstream.remember(lab, self.node, self.port)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Insert the proxy."""
        upstream.insert(lab, self.node, self.port, memory, {"status": self.status, "share": self.share})

    def verify(self, lab: Lab, memory: Memory) -> str:
        """A request gets that status; of a smaller share of them, one of many."""
        upstream.verify(lab, self.node, memory)
        most = 1 if self.share >= 1 else int(_TRIALS / self.share)
        seen = []
        for _ in range(most):
            status, _ = upstream.request(lab, self.node, self.port, 10)
            seen.append(status)
            if status == self.status:
                return f"request {len(seen)} was answered with {status}"
        raise FaultError(f"{len(seen)} requests were answered with {sorted(set(seen))}")

    def heal(self, lab: Lab, memory: Memory) -> None:
        """Take the proxy away."""
        upstream.withdraw(lab, self.node, memory)

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """It is gone."""
        return upstream.verify_withdrawn(lab, self.node, memory)
