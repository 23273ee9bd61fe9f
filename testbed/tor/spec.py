"""The sections ``tor`` and ``onions`` of a topology."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, RootModel, StrictBool

from testbed.model.quantities import Duration, Size
from testbed.model.topology import AttachmentSpec, Count, Name, Spec
from testbed.tor.onion.strategies import MAX_POINTS, MIN_POINTS

MAX_INSTANCES = 60
"""Most instances of one onion service: six HSDirs times ten instances a descriptor."""


def _network_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9+_.-]*", value):
        raise ValueError(f"{value!r} is no name of a network; write a name such as hs-v3")
    return value


NetworkName = Annotated[str, AfterValidator(_network_name)]


class TorSpec(Spec):
    """A private Tor network. Every node hangs on one router, `core` unless `attach` names another."""

    engine: Literal["testbed", "chutney"] = Field(
        "testbed", description="Who makes the network: the testbed itself, or chutney, found by CHUTNEY_PATH."
    )
    network: NetworkName | None = Field(None, description="With `chutney`: the name of its network.")
    authorities: Annotated[Count, Field(ge=1, le=9, description="Directory authorities.")] = 1
    relays: Annotated[Count, Field(ge=0, le=500, description="Relays that are not exits.")] = 3
    exits: Annotated[Count, Field(ge=0, le=100, description="Exit relays.")] = 0
    clients: Annotated[Count, Field(ge=0, le=500, description="Onion clients, each with its own SOCKS port.")] = 1
    attach: str | None = Field(None, description="Router that the nodes hang on.")
    clients_at: tuple[str, ...] = Field((), description="Routers that the clients hang on, in turn; else `attach`.")
    link: AttachmentSpec | None = Field(None, description="The link of each node to its router.")
    lifetime: Duration = Field(
        3 * 3600 * 10**6,
        description="How long the lab may run; decides the voting interval, so that clients fetch current descriptors.",
    )
    hsdir_spread: Annotated[Count, Field(ge=1, le=20)] = Field(
        3, description="HSDirs that hold each of a descriptor's two replicas; three make six HSDirs in all."
    )
    torrc: dict[str, str | tuple[str, ...]] = Field(
        default_factory=dict, description="Further torrc options for every node; a list for one that is repeated."
    )

    @property
    def hsdirs(self) -> int:
        """How many HSDirs are responsible for a descriptor."""
        return min(2 * self.hsdir_spread, self.authorities + self.relays + self.exits)

    @property
    def torrc_options(self) -> dict[str, tuple[str, ...]]:
        """``torrc`` with every value as a tuple."""
        return {option: (value,) if isinstance(value, str) else value for option, value in self.torrc.items()}


class ContentSpec(Spec):
    """What an onion service serves."""

    size: Size = Field(2**20, description="Length of the file that clients fetch.")


class OnionSpec(Spec):
    """One onion address, served by several instances that share its identity key."""

    instances: Annotated[Count, Field(ge=1, le=MAX_INSTANCES)] = 1
    publish: Literal["naive", "simultaneous", "late", "distributor", "onionbalance", "hybrid"] = Field(
        "naive",
        description="How the instances' descriptors come to the HSDirs; see docs/publishing.md.",
    )
    stagger: Duration = Field(
        2_000_000, description="With `naive` and `late`: time from one instance's start to the next's."
    )
    late: Annotated[Count, Field(ge=1, le=MAX_INSTANCES)] | None = Field(
        None, description="With `late`: the instance that starts after the others; otherwise the last."
    )
    late_by: Duration = Field(30_000_000, description="With `late`: time from the others' start to that instance's.")
    introduction_points: Annotated[Count, Field(ge=MIN_POINTS, le=MAX_POINTS)] = Field(
        MIN_POINTS, description="Introduction points of each instance."
    )
    single_onion: StrictBool = Field(
        False, description="Single onion service: instances are not anonymous, their circuits have one hop."
    )
    runtime: Literal["process", "container"] | None = None
    image: str | None = None
    attach: str | None = Field(None, description="Router that the instances hang on.")
    link: AttachmentSpec | None = Field(None, description="The link of each instance to its router.")
    content: ContentSpec = ContentSpec()


class OnionsSpec(RootModel[dict[Name, OnionSpec]]):
    """Onion services by name."""
