"""A program that crashes again and again, and is started again each time."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from testbed.faults.base import Fault
from testbed.faults.compose import Cycle
from testbed.faults.fields import NodeName, limits
from testbed.faults.kill import Kill
from testbed.model.quantities import Duration, format_duration_us
from testbed.model.words import Name


class CrashLoop(Cycle):
    """SIGKILL at each period, and a new start after ``down``. After the last crash the program stays up."""

    kind: ClassVar[str] = "crash-loop"
    node: NodeName
    service: Annotated[Name, Field(description="The program.")]
    period: Annotated[
        Duration, limits(format_duration_us, 500_000), Field(description="From one crash to the next, at least 500ms.")
    ]
    count: Annotated[int, Field(strict=True, ge=1, le=10_000, description="How many crashes.")]
    down: Duration = Field(0, description="How long the program is gone each time.")

    def unit(self) -> Fault:
        """The crash."""
        return Kill(node=self.node, service=self.service)

    def timing(self) -> tuple[float, int, float]:
        """As given."""
        return self.period / 1e6, self.count, self.down / 1e6
