"""The key ``bgp`` of an edge."""

from __future__ import annotations

from pydantic import Field, model_validator

from testbed.model.quantities import SECOND, Duration
from testbed.model.topology import Count, Spec

FIRST_ASN = 65001
"""Autonomous system of the first provider; the others follow (RFC 6996: private ones)."""
LAST_ASN = 65099
LEAST_HOLD = 3


class BgpSpec(Spec):
    """Of mode `bgp`: the campus' autonomous system and its sessions."""

    asn: Count = Field(64999, ge=64512, le=65534, description="The campus' autonomous system; one for private use.")
    hold: Duration = Field(9 * SECOND, description="A session without a word for this time is over; from 3s.")
    keepalive: Duration = Field(3 * SECOND, description="From one word to the next; at most a third of `hold`.")

    @model_validator(mode="after")
    def _sensible(self) -> BgpSpec:
        if FIRST_ASN <= self.asn <= LAST_ASN:
            raise ValueError(f"`asn` {self.asn} is that of a provider; write one from 64512 to {FIRST_ASN - 1}")
        for key in ("hold", "keepalive"):
            if getattr(self, key) % SECOND or not getattr(self, key):
                raise ValueError(f"`{key}` is not a whole number of seconds; write 1s or more")
        if not LEAST_HOLD * SECOND <= self.hold <= 65_535 * SECOND:
            raise ValueError(f"`hold` is less than {LEAST_HOLD}s or more than 65535s; write such as 9s")
        if 3 * self.keepalive > self.hold:
            raise ValueError("`keepalive` is more than a third of `hold`; write a shorter one, or a longer `hold`")
        return self
