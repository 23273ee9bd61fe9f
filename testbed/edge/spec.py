"""The section ``edge`` of a topology. Names are those of the field; what belongs together across keys is in check."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.edge.bgp.spec import BgpSpec
from testbed.edge.dns.spec import DnsSpec
from testbed.edge.filters.spec import FilterSpec
from testbed.model.quantities import SECOND, Duration, Fraction, Rate, Size
from testbed.model.topology import Count, Name, Spec
from testbed.model.words import NAME_PATTERN

MAX_ISPS = 12
MAX_CLIENTS = 50
MAX_SITES = 5000
MAX_PREFIXES = 4000
MAX_ISP_NAME = 12
FIRST_PORT = 8001
"""The public port of the first site, where ports are given out in turn."""

Mode = Literal["none", "redirect", "smart-dns", "bgp", "cdn"]

_HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _isp_name(text: str) -> str:
    if len(text) > MAX_ISP_NAME:
        raise ValueError(f"{text!r} is {len(text)} characters long; the name of a network has at most {MAX_ISP_NAME}")
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text) or text.replace(".", "").isdigit():
        raise ValueError(f"{text[:60]!r} is not a host name; write one in lower case such as www.campus.test")
    return text


IspName = Annotated[
    Name,
    AfterValidator(_isp_name),
    WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "maxLength": MAX_ISP_NAME}),
]
HostName = Annotated[str, AfterValidator(_host), WithJsonSchema({"type": "string", "pattern": _HOST.pattern + "$"})]
Port = Annotated[Count, Field(ge=1, le=65535)]
Prefixes = Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_PREFIXES)]


class _Short:
    """In a JSON Schema: what may be written instead of the long form."""

    def __init__(self, *forms: JsonSchemaValue) -> None:
        self._forms = forms

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), *self._forms]}


class ClientSpec(Spec):
    """One user of a network."""

    resolver: str | None = Field(None, description="Network whose resolver it asks; otherwise that of its own.")
    delay: Duration | None = Field(None, description="One way to its network's router; otherwise the network's delay.")


def _clients(value: Any) -> Any:
    """``clients: 2`` is short for two clients without keys."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value > MAX_CLIENTS:
            raise ValueError(f"{value} clients are more than the {MAX_CLIENTS} that a network can have; write fewer")
        return [{} for _ in range(value)]
    return value


Clients = Annotated[
    tuple[ClientSpec, ...],
    BeforeValidator(_clients),
    _Short({"type": "integer", "minimum": 1, "maximum": MAX_CLIENTS}),
]


class NetworkSpec(Spec):
    """A network that users are in: its router is a node of that name."""

    prefixes: Prefixes = Field(
        description="Addresses of its users; nodes get theirs from the first.", examples=[["61.128.0.0/16"]]
    )
    delay: Duration = Field(5_000, description="One way between a client and the network's router.")
    rate: Rate | None = Field(None, description="Rate of each client's link.")
    clients: Clients = Field((ClientSpec(),), description="A number, or a list with what differs.")
    resolver: str | None = Field(None, description="Network whose resolver its clients ask; otherwise its own.")


class UplinkSpec(Spec):
    """The campus' link to a network."""

    delay: Duration = Field(0, description="One way.")
    loss: Fraction = Field(0.0, description="Share of packets lost, in each direction.")
    rate: Rate | None = Field(None, description="Rate of the campus' access.")


class IspSpec(NetworkSpec):
    """An Internet provider of the campus."""

    public: str | None = Field(
        None, description="Public address in its prefixes for sites that name none; their ports count up from 8001."
    )
    uplink: UplinkSpec = Field(UplinkSpec(), description="The campus' link to this provider.")


class EducationSpec(NetworkSpec):
    """The education network. Every site's own address is in it, and everything comes in through it by default."""

    name: IspName = Field("cernet", description="Its name, and that of its router.")
    uplink: UplinkSpec = Field(UplinkSpec(), description="The campus' link to it.")


class PathSpec(Spec):
    """The way between two networks."""

    delay: Duration | None = Field(None, description="One way; the round trip takes twice as long.")
    loss: Fraction | None = Field(None, description="Share of packets lost, in each direction.")
    rate: Rate | None = Field(None, description="Rate in each direction.")


class PairSpec(PathSpec):
    """The way between two networks that are named."""

    between: tuple[str, str] = Field(description="Two networks.", examples=[["telecom", "cernet"]])


class ExchangeSpec(PathSpec):
    """Where networks meet. Without a delay the pairs' round trips are spread evenly over 200 to 500 ms."""

    pairs: tuple[PairSpec, ...] = Field((), description="What differs between two networks.")


class ServerSpec(Spec):
    """A web server of the campus."""

    delay: Duration = Field(0, description="One way between the server and the campus router.")
    rate: Rate | None = Field(None, description="Rate of the server's link.")
    connections: Count = Field(4096, ge=16, le=60_000, description="Connections that its nginx holds at once.")


class CampusSpec(Spec):
    """The campus' own network."""

    prefix: str = Field(
        "202.112.10.0/24",
        description="Addresses of its sites, in the education network's prefixes.",
        examples=["202.112.10.0/24"],
    )
    servers: dict[Name, ServerSpec | None] = Field(
        default={"web1": None}, min_length=1, description="Web servers by name."
    )


class PublicSpec(Spec):
    """Where a site is reached in one provider's network."""

    address: str | None = Field(None, description="Otherwise the provider's `public`.")
    port: Port | None = Field(None, description="Otherwise the next one from 8001 on that nobody has.")


def _public(value: Any) -> Any:
    """``61.128.200.2:8001``, ``61.128.200.2`` and ``8001`` are short forms."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"port": value}
    if isinstance(value, str):
        address, colon, port = value.rpartition(":")
        if not colon:
            return {"address": value}
        if not port.isdigit():
            raise ValueError(f"{value!r} is not an address and a port; write it as 61.128.200.2:8001")
        return {"address": address, "port": int(port)}
    return value


Public = Annotated[
    PublicSpec,
    BeforeValidator(_public),
    _Short({"type": "string"}, {"type": "integer"}),
]


class SiteSpec(Spec):
    """A web site that users of the providers are to reach by the near way."""

    server: str | None = Field(None, description="Web server that has it; otherwise the first.")
    port: Port = Field(80, description="TCP port of the site at its own address.")
    address: str | None = Field(None, description="Its address in the campus' prefix; otherwise the next free one.")
    public: dict[str, Public] = Field(
        default_factory=dict,
        description="By provider: public address and port. May be left out where the provider has a `public`.",
        examples=[{"telecom": "61.128.200.2:8001"}],
    )
    https: dict[str, HostName] = Field(
        default_factory=dict,
        description="By provider: host name with a certificate of its own; redirects then go to https://NAME:PORT.",
        examples=[{"telecom": "telecom.www.campus.test"}],
    )


class HealthSpec(Spec):
    """How quickly a dead way is noticed."""

    interval: Duration = Field(200_000, description="From one probe of each provider's link to the next.")
    misses: Count = Field(3, ge=1, le=100, description="Probes in a row without answer that make a link down.")
    answers: Count = Field(3, ge=1, le=100, description="Probes in a row with an answer that make it up again.")

    @model_validator(mode="after")
    def _sensible(self) -> HealthSpec:
        if not 20_000 <= self.interval <= 60_000_000:
            raise ValueError("`interval` is not between 20ms and 60s; write a time between them")
        return self


def _off(value: Any) -> Any:
    """``health: false`` is none at all."""
    return None if value is False else value


Watching = Annotated[Annotated[HealthSpec, _Short({"const": False})] | None, BeforeValidator(_off)]


class RedirectSpec(Spec):
    """Of mode `redirect`."""

    variant: Literal["dnat", "pbr"] = Field(
        "dnat",
        description="How the inner router hands over by source: with address translation, or by policy routes alone.",
    )
    status: Literal[302, 301, 307, 308] = Field(
        302, description="Of answers to GET and HEAD; other methods get 307, or 308 where this is a permanent one."
    )
    addresses: str = Field(
        "10.200.0.0/24",
        description="Private prefix for the redirector's listeners, one address a provider.",
        examples=["10.200.0.0/24"],
    )
    failover: Literal["nearest", "education"] = Field(
        "nearest",
        description="Users of a provider whose link is down: by the nearest way, or by the education network.",
    )
    keep: Duration | None = Field(
        None, description="How long browsers may keep a redirect, in whole seconds; otherwise answers do not say."
    )
    health: Watching = Field(HealthSpec(), description="Watching links and redirector; false: nobody watches.")

    @model_validator(mode="after")
    def _whole_seconds(self) -> RedirectSpec:
        if self.keep is not None and (self.keep % SECOND or not SECOND <= self.keep <= 3600 * SECOND):
            raise ValueError("`keep` is not a whole number of seconds up to an hour; write 1s to 1h, or leave it out")
        return self


class ContentSpec(Spec):
    """What every site serves."""

    page: Size = Field(20 * 2**10, description="Length of /page.")
    bulk: Size = Field(2 * 2**20, description="Length of /bulk.")


class EdgeSpec(Spec):
    """A multi-homed campus: providers with their users, the education network, and the campus' routers and servers."""

    mode: Mode = Field("redirect", description="How users of the providers reach the sites.")
    isps: dict[IspName, IspSpec] = Field(min_length=1, max_length=MAX_ISPS, description="Providers by name.")
    education: EducationSpec = Field(
        EducationSpec(prefixes=("202.112.0.0/16",)), description="The education network, here CERNET."
    )
    exchange: ExchangeSpec = Field(ExchangeSpec(), description="Delay, loss and rate between networks.")
    campus: CampusSpec = Field(CampusSpec(), description="The campus' own network.")
    sites: dict[HostName, SiteSpec | None] = Field(
        min_length=1, max_length=MAX_SITES, description="Accelerated web sites by host name."
    )
    redirect: RedirectSpec = Field(RedirectSpec(), description="Of mode `redirect`.")
    dns: DnsSpec = Field(DnsSpec(), description="The name servers.")
    bgp: BgpSpec = Field(BgpSpec(), description="Of mode `bgp`.")
    filter: FilterSpec | None = Field(None, description="Protection of the sites; otherwise none.")
    content: ContentSpec = Field(ContentSpec(), description="What every site serves.")
