"""The key ``filter`` of an edge."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, StrictBool, WithJsonSchema, model_validator

from testbed.model.quantities import FORMATS, SECOND, Duration
from testbed.model.topology import Count, Spec

_PER_SECOND = re.compile(r"([1-9][0-9]{0,5})/s")


def _parse(value: object) -> int:
    found = _PER_SECOND.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{str(value)[:40]!r} is not a number a second; write 1/s to 999999/s, such as 20/s")
    return int(found[1])


PerSecond = Annotated[
    int,
    BeforeValidator(_parse),
    PlainSerializer(lambda number: f"{number}/s", return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_PER_SECOND.pattern}$", "examples": ["20/s"]}),
]
"""How often something may happen, events a second; text such as ``20/s`` in YAML."""
FORMATS[f"^{_PER_SECOND.pattern}$"] = lambda number: f"{number}/s"


class BanSpec(Spec):
    """Who is refused for a while, by what the redirector's log says of them."""

    after: Count = Field(20, ge=0, le=10_000, description="Bad requests of one source that are too many; 0: no bans.")
    within: Duration = Field(10 * SECOND, description="Time in which they are counted, at least 1s.")
    lasts: Duration = Field(60 * SECOND, description="How long the source is refused, at least 1s.")

    @model_validator(mode="after")
    def _long_enough(self) -> BanSpec:
        for key in ("within", "lasts"):
            if getattr(self, key) < SECOND:
                raise ValueError(f"`{key}` of a ban is less than a second; write 1s or more")
        return self


class FilterSpec(Spec):
    """Limits for each source address. Left out: there is no filter at all; with `{}` all but the SYN proxy is on."""

    opening: PerSecond = Field(20, description="New connections of one source, at each border router.")
    burst: Count = Field(40, ge=1, le=100_000, description="New connections of one source at once, beyond `opening`.")
    held: Count = Field(50, ge=1, le=100_000, description="Connections of one source at the same time.")
    requests: PerSecond = Field(50, description="Requests of one source, at the redirector and the web servers.")
    slow: Duration = Field(5 * SECOND, description="Longest pause in the middle of a request, whole seconds from 1s.")
    syn_proxy: StrictBool = Field(
        False, description="Border routers answer SYNs themselves, and only whole handshakes reach the servers."
    )
    ban: BanSpec = Field(BanSpec(), description="Who is refused for a while.")

    @model_validator(mode="after")
    def _whole_seconds(self) -> FilterSpec:
        if self.slow < SECOND or self.slow % SECOND:
            raise ValueError("`slow` is not a whole number of seconds; write 1s or more")
        return self
