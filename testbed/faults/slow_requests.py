"""Many HTTP requests that never end."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from testbed.faults.fields import limits
from testbed.faults.tools.load import Flood
from testbed.model.quantities import Duration, format_duration_us


class SlowRequests(Flood):
    """Each connection sends a header line at every interval and never the last one, as the tool slowloris does."""

    kind: ClassVar[str] = "slow-requests"
    interval: Annotated[
        Duration, limits(format_duration_us, 1000), Field(description="Time between two header lines, at least 1ms.")
    ] = 1_000_000

    def seconds_between(self) -> float:
        """As given."""
        return self.interval / 1e6
