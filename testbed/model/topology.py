"""The topology language as pydantic models. ``load.py`` makes these from YAML; ``plan/`` expands them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from testbed.model.quantities import Duration, Fraction, Rate, Size

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
"""Lower-case letters, digits and hyphens, beginning with a letter, at most 40 characters."""

Count = Annotated[int, Field(strict=True)]
"""A whole number, written as one."""

RESERVED_NAMES = frozenset({"all", "host", "lo", "self"})
"""Node names that would mean something else on a command line or in a namespace."""


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
    duplicate: Fraction | None = Field(None, description="Share of packets sent twice.")
    corrupt: Fraction | None = Field(None, description="Share of packets with a flipped bit.")
    reorder: StrictBool | None = Field(None, description="Whether jitter may change the order of packets.")
    rate: Rate | None = Field(None, description="Rate limit (token bucket), in each direction.")


class LinkSpec(ImpairmentSpec):
    """A cable between two nodes. Short form: the list of its two endpoints alone."""

    endpoints: tuple[str, str] = Field(description="Two nodes, each as `node` or `node:interface`.")
    addresses: tuple[str, str] | None = Field(
        None, description="Address with prefix length for each endpoint; otherwise allocated."
    )
    mtu: Count = Field(1500, ge=1280, le=65535, description="Largest packet, bytes; one value for both ends.")
    forward: ImpairmentSpec | None = Field(None, description="What differs from first to second endpoint.")
    backward: ImpairmentSpec | None = Field(None, description="What differs from second to first endpoint.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"endpoints": value} if isinstance(value, list) else value


class AttachmentSpec(ImpairmentSpec):
    """The link by which a subsystem's node hangs on its router: a link whose endpoints follow from the context."""

    mtu: Count = Field(1500, ge=1280, le=65535)


class RouteSpec(Spec):
    """A static route in addition to the computed ones; it wins over a computed one for the same prefix."""

    to: str = Field(description="Destination prefix, such as 10.9.0.0/16, or `default`.")
    via: str = Field(description="Address of the next hop, which must be on one of the node's links.")


class ServiceSpec(Spec):
    """A program that runs in a node for as long as the lab is up."""

    command: tuple[str, ...] = Field(min_length=1, description="Program and arguments; no shell.")
    env: dict[str, str] = Field(default_factory=dict)
    root: StrictBool = Field(False, description="Run as root inside the node (process runtime only).")


class NodeSpec(Spec):
    """A plain node. `host` ends traffic, `router` forwards it, `switch` is a bridge."""

    kind: Literal["host", "router", "switch"] = "host"
    runtime: Literal["process", "container"] | None = None
    image: str | None = Field(None, description="Container image; default: the testbed's own.")
    memory: Size | None = Field(None, description="Memory limit (container runtime).")
    pids: Count | None = Field(None, ge=1, description="Process limit (container runtime).")
    subnet: str | None = Field(None, description="Of a switch: the prefix from which its neighbours' addresses come.")
    routes: tuple[RouteSpec, ...] = ()
    services: dict[Name, ServiceSpec] = Field(default_factory=dict)


class DefaultsSpec(Spec):
    """Values for whatever the rest of the topology leaves open."""

    pool: str = Field("10.0.0.0/8", description="Prefix from which addresses are allocated.")
    runtime: Literal["process", "container"] = "process"
    link: AttachmentSpec = AttachmentSpec()


class Topology(Spec):
    """A whole topology. `sections` holds the subsystems' parts by name; in YAML they are top-level keys."""

    name: Name
    seed: Count = Field(0, ge=0, description="Everything random in the lab is drawn from it.")
    description: str = ""
    defaults: DefaultsSpec = DefaultsSpec()
    nodes: dict[Name, NodeSpec | None] = Field(default_factory=dict)
    links: tuple[LinkSpec, ...] = ()
    sections: dict[str, Any] = Field(default_factory=dict)
