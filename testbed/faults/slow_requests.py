"""Many HTTP requests that never end."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from testbed.faults.tools.load import Flood
from testbed.model.quantities import Duration


class SlowRequests(Flood):
    """Each connection sends a header line at every interval and never the last one, as the tool slowloris does."""

    kind: ClassVar[str] = "slow-requests"
    interval: Annotated[Duration, Field(ge=1000, description="Time between two header lines.")] = 1_000_000

    def seconds_between(self) -> float:
        """As given."""
        return self.interval / 1e6
