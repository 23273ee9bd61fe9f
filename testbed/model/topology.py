"""The topology language as pydantic models. ``load`` makes these from YAML; ``plan/`` expands them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.model.quantities import Duration, Fraction, Rate, Size
from testbed.model.words import RESERVED_NAMES, Endpoint, Name, NodeFiles

__all__ = [
    "RESERVED_NAMES",
    "AttachmentSpec",
    "Count",
    "DefaultsSpec",
    "ImpairmentSpec",
    "LinkDefaultsSpec",
    "LinkSpec",
    "Name",
    "NodeSpec",
    "RouteSpec",
    "ServiceSpec",
    "Spec",
    "Topology",
]

Count = Annotated[int, Field(strict=True)]
"""A whole number, written as one."""

RuntimeChoice = Literal["process", "container"]


class Spec(BaseModel):
    """Base of every part of the language: unknown keys are errors, and nothing is converted silently.

    Whole numbers are ``Count`` or strict, truth values ``StrictBool``; lists become tuples, which is all that pydantic
    may convert (its strict mode as a whole would refuse that too).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImpairmentSpec(Spec):
    """What a link does to packets, in each direction it applies to."""

    delay: Duration | None = Field(
        None, description="One-way delay; the round trip over the link takes both directions' delays."
    )
    jitter: Duration | None = Field(None, description="Half width of the delay's variation.")
    loss: Fraction | None = Field(None, description="Share of packets lost.")
    loss_burst: Annotated[float, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Mean length of a burst of losses, packets; otherwise each is lost independently."
    )
    duplicate: Fraction | None = Field(None, description="Share of packets sent twice.")
    corrupt: Fraction | None = Field(None, description="Share of packets with a flipped bit.")
    reorder: StrictBool | None = Field(None, description="Whether jitter may change the order of packets.")
    rate: Rate | None = Field(None, description="Rate limit (token bucket).")


class LinkDefaultsSpec(ImpairmentSpec):
    """Values for links that do not set their own; impairments hold in both directions."""

    mtu: Count = Field(1500, ge=1280, le=65535, description="Largest packet, bytes; one value for both ends.")


class AttachmentSpec(LinkDefaultsSpec):
    """The link by which a subsystem's node hangs on its router: a link whose endpoints follow from the context."""

    forward: ImpairmentSpec | None = Field(None, description="What differs from the node to its router.")
    backward: ImpairmentSpec | None = Field(None, description="What differs from the router to its node.")


class LinkSpec(LinkDefaultsSpec):
    """A cable between two nodes. Short form: the list of its two endpoints alone."""

    endpoints: tuple[Endpoint, Endpoint] = Field(description="Two nodes, each as `node` or `node:interface`.")
    addresses: tuple[str | None, str | None] | None = Field(
        None,
        description="Address with prefix length for each endpoint, null for one on a switch; otherwise allocated.",
        examples=[["10.0.0.1/30", "10.0.0.2/30"]],
    )
    forward: ImpairmentSpec | None = Field(None, description="What differs from first to second endpoint.")
    backward: ImpairmentSpec | None = Field(None, description="What differs from second to first endpoint.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"endpoints": value} if isinstance(value, list) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long_form = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [long_form, long_form["properties"]["endpoints"]], "description": cls.__doc__}


class RouteSpec(Spec):
    """A static route in addition to the computed ones; it wins over a computed one for the same prefix."""

    to: str = Field(
        description="Destination prefix, or `default`.",
        examples=["10.9.0.0/16", "default"],
    )
    via: str = Field(
        description="Address of the next hop, which must be on one of the node's links.", examples=["10.0.0.1"]
    )


class ServiceSpec(Spec):
    """A program that runs in a node for as long as the lab is up."""

    command: tuple[str, ...] = Field(
        min_length=1,
        description="Program and arguments; no shell. `${dir}` is the node's own folder, `${address:web}` an address.",
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables.")
    root: StrictBool = Field(False, description="Run as root inside the node (process runtime only).")


class NodeSpec(Spec):
    """A plain node. `host` ends traffic, `router` forwards it, `switch` is a bridge."""

    kind: Literal["host", "router", "switch"] = Field(
        "host", description="`host` ends traffic, `router` forwards it, `switch` is a bridge."
    )
    runtime: RuntimeChoice | None = Field(
        None, description="Where the processes of a host live; otherwise as `defaults.runtime` says."
    )
    image: str | None = Field(
        None, min_length=1, description="Container image; otherwise the testbed's own.", examples=["testbed/node:1"]
    )
    memory: Size | None = Field(None, description="Memory limit (container runtime), at least 6MiB.")
    pids: Count | None = Field(None, ge=1, description="Process limit (container runtime).")
    subnet: str | None = Field(
        None,
        description="Of a switch: the prefix from which its neighbours' addresses come.",
        examples=["10.1.0.0/24"],
    )
    routes: tuple[RouteSpec, ...] = Field((), description="Static routes.")
    files: NodeFiles = Field(
        default_factory=dict,
        description="Text files in the node's own folder, by path; `${dir}` and `${address:web}` as in commands.",
    )
    services: dict[Name, ServiceSpec] = Field(default_factory=dict, description="Programs that run in the node.")


class DefaultsSpec(Spec):
    """Values for whatever the rest of the topology leaves open."""

    pool: str = Field(
        "10.0.0.0/8", description="Prefix from which addresses are allocated.", examples=["10.0.0.0/8", "fd00::/48"]
    )
    runtime: RuntimeChoice = Field("process", description="Where the processes of hosts live.")
    link: LinkDefaultsSpec = Field(LinkDefaultsSpec(), description="For links that do not set their own.")


class Topology(Spec):
    """A whole topology. `sections` holds the subsystems' parts by name; in YAML they are top-level keys."""

    name: Name = Field(description="The lab's name, unless `up --name` gives another.")
    seed: Count = Field(0, ge=0, lt=2**63, description="Everything random in the lab is drawn from it.")
    description: str = Field("", description="One line for lists and reports.")
    defaults: DefaultsSpec = Field(
        DefaultsSpec(), description="Values for whatever the rest of the topology leaves open."
    )
    nodes: dict[Name, NodeSpec | None] = Field(
        default_factory=dict, description="Plain nodes by name; one without keys is a host."
    )
    links: tuple[LinkSpec, ...] = Field((), description="Cables between nodes.")
    sections: dict[str, Any] = Field(default_factory=dict)
