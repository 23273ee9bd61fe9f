"""The key ``dns`` of an edge."""

from __future__ import annotations

from pydantic import Field, StrictBool, model_validator

from testbed.model.quantities import SECOND, Duration
from testbed.model.topology import Spec


class DnsSpec(Spec):
    """The name servers: the campus' authority, and a resolver in each network."""

    ttl: Duration = Field(30 * SECOND, description="How long resolvers may keep an answer, whole seconds.")
    client_subnet: StrictBool = Field(
        False,
        description="Resolvers tell the authority each client's /24 (RFC 7871); modes that answer by network go by it.",
    )

    @model_validator(mode="after")
    def _whole_seconds(self) -> DnsSpec:
        if self.ttl % SECOND or self.ttl > 86_400 * SECOND:
            raise ValueError("`ttl` is not a whole number of seconds up to a day; write 0s to 24h")
        return self
