"""A link that goes down and up again and again."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from testbed.faults.base import Fault
from testbed.faults.compose import Cycle
from testbed.faults.fields import LinkEnds, limits
from testbed.faults.link_down import LinkDown
from testbed.model.quantities import Duration, format_duration_us


class LinkFlap(Cycle):
    """The link is down for the first part of each period. After the last it stays up."""

    kind: ClassVar[str] = "link-flap"
    link: LinkEnds
    period: Annotated[
        Duration, limits(format_duration_us, 100_000), Field(description="From one loss to the next, at least 100ms.")
    ]
    count: Annotated[int, Field(strict=True, ge=1, le=10_000, description="How many losses.")]
    down: Duration | None = Field(None, description="How long each lasts; otherwise half of the period.")

    @model_validator(mode="after")
    def _comes_up(self) -> LinkFlap:
        if self.down is not None and self.down >= self.period:
            raise ValueError("`down` is not shorter than `period`; the link would not come up between two losses")
        return self

    def unit(self) -> Fault:
        """The loss."""
        return LinkDown(link=self.link)

    def timing(self) -> tuple[float, int, float]:
        """As given."""
        down = self.period / 2 if self.down is None else self.down
        return self.period / 1e6, self.count, down / 1e6
