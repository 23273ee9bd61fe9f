"""The section ``pool`` of a topology."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, RootModel, model_validator

from testbed.model.quantities import Duration, Size
from testbed.model.topology import AttachmentSpec, Count, Name, Spec
from testbed.pool.schedule import gf2
from testbed.pool.schedule.lfsr import PRIMITIVE, PUBLISHED, check
from testbed.pool.schedule.sequences import check_bits

MOST_SERVERS = 50
PUBLISHED_WORD = "published"


def feedback_polynomial(text: str | None) -> int:
    """``x^63 + x + 1`` or ``published`` to a polynomial, None to the default. ValueError if no register can have it."""
    if text is None:
        return PRIMITIVE
    return PUBLISHED if text == PUBLISHED_WORD else check(gf2.parse(text))


def _feedback(text: str) -> str:
    feedback_polynomial(text)
    return text


def _bits(value: str | tuple[int, ...]) -> str | tuple[int, ...]:
    check_bits(value)
    return value


def _servers(number: int) -> int:
    if number < 2:
        raise ValueError(f"a pool of {number} has nobody to hand the service over to; it must be at least 2")
    return number


def _some_time(microseconds: int) -> int:
    if microseconds == 0:
        raise ValueError("nothing would pass between one and the next; give a time above 0s")
    return microseconds


SomeTime = Annotated[Duration, AfterValidator(_some_time)]
Bits = Annotated[str | tuple[Annotated[int, Field(strict=True)], ...], AfterValidator(_bits)]


class BitsSpec(Spec):
    """Where bits come from, and when they stand."""

    bits: Bits | None = Field(None, description="The bits themselves, as text or list.", examples=["0010110"])
    file: str | None = Field(
        None, min_length=1, description="Text file of 0 and 1, beside the topology; it is read when the lab starts."
    )
    first: Duration | None = Field(None, description="When the first bit stands; otherwise after one period.")


class SequenceSpec(BitsSpec):
    """The pseudo-random sequence: a shift register, unless `bits` or `file` give it."""

    period: SomeTime = Field(60 * 10**6, description="Time from one bit to the next.")
    feedback: Annotated[str, AfterValidator(_feedback)] | None = Field(
        None,
        description="Polynomial of the register, or `published` for the paper's; otherwise x^63 + x + 1.",
        examples=["x^63 + x + 1", "published"],
    )
    state: str | None = Field(
        None, description="Start of the register, a bit a stage; otherwise made from the topology's seed."
    )

    @model_validator(mode="after")
    def _one_source(self) -> SequenceSpec:
        if self.bits is not None and self.file is not None:
            raise ValueError("it has both `bits` and `file`; leave one of them out")
        given = next((key for key in ("bits", "file") if getattr(self, key) is not None), "")
        extra = next((key for key in ("feedback", "state") if getattr(self, key) is not None), "")
        if given and extra:
            raise ValueError(f"`{extra}` is of a register, and `{given}` takes its place; leave one of them out")
        return self


class DetectionSpec(BitsSpec):
    """The detection sequence: given, or made by live detectors."""

    period: SomeTime = Field(120 * 10**6, description="Time from one bit to the next.")
    live: Literal[True] | None = Field(None, description="A bit is 1 if a detector saw something since the bit before.")

    @model_validator(mode="after")
    def _one_source(self) -> DetectionSpec:
        given = [key for key in ("bits", "file", "live") if getattr(self, key) is not None]
        if not given:
            raise ValueError("it has no source; give `bits`, `file` or `live: true`")
        if len(given) > 1:
            raise ValueError(f"it has both `{given[0]}` and `{given[1]}`; leave one of them out")
        return self


class ContentSpec(Spec):
    """What web servers serve beside a small page: one file."""

    size: Annotated[Size, Field(le=64 * 2**20)] = Field(2**20, description="Size of the file.")


class PoolSpec(Spec):
    """Servers that give one service in turn. One serves at a time; who gave the service up is made anew and checked."""

    servers: Annotated[Count, Field(le=MOST_SERVERS), AfterValidator(_servers)] = Field(3, description="Servers.")
    service: Literal["web", "dns"] = Field("web", description="What they serve.")
    scheduler: Literal["competition", "round-robin", "random", "central", "none"] = Field(
        "competition",
        description="Who takes over: the winner of the `competition` (fewest attacks in its last service period), the "
        "next in turn, any by lot, or whom a central controller names; with `none` the service stays.",
    )
    sequence: SequenceSpec | None = Field(None, description="Pseudo-random sequence; each 1 moves the service.")
    detection: DetectionSpec | None = Field(None, description="Detection sequence; each 1 moves the service.")
    combine: Literal["or", "xor"] = Field("or", description="How the two sequences become one.")
    timer: SomeTime = Field(250 * 10**6, description="Longest time without a migration; each one restarts it.")
    reinitialise: Duration = Field(
        10**6, description="Real time that making a server anew and checking it may take; longer is an event."
    )
    suspended: SomeTime | None = Field(
        None, description="Longest time that a server serves on when nobody can take over; otherwise as `timer`."
    )
    without_store: Literal["serve", "stop"] = Field(
        "serve", description="What the server in service does while the shared store does not answer."
    )
    connections: Literal["migrate", "drain", "reset"] = Field(
        "migrate", description="What becomes of open connections: moved live, left to finish, or reset."
    )
    drain: SomeTime | None = Field(
        None, description="With `connections: drain`, how long an old server may go on; otherwise as `timer`."
    )
    content: ContentSpec = ContentSpec()
    speed: Annotated[Count, Field(ge=1, le=10_000)] = Field(
        1, description="How many seconds of the pool's time pass in a real second."
    )
    runtime: Literal["process", "container"] | None = None
    image: str | None = Field(None, min_length=1, description="Container image; otherwise the testbed's own.")
    attach: str | None = Field(None, description="Router that the pool hangs on.")
    link: AttachmentSpec | None = Field(None, description="The link of each server to the pool's dispatcher.")


class PoolsSpec(RootModel[dict[Name, PoolSpec]]):
    """Server pools by name."""


def server_names(pool: str, spec: PoolSpec) -> list[str]:
    """Node names of a pool's servers."""
    return [f"{pool}{number}" for number in range(1, spec.servers + 1)]
