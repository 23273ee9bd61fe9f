"""A link that gets worse: slower, longer, lossy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from testbed.errors import TestbedError
from testbed.faults.base import Fault, FaultBusy, FaultError, Memory
from testbed.faults.fields import LinkEnds
from testbed.faults.journal import Journal
from testbed.lab import links
from testbed.model.topology import ImpairmentSpec
from testbed.plan.types import Impairment, Link

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_FIELDS = {"delay": "delay_us", "jitter": "jitter_us", "rate": "rate_bps"}
"""Settings that have another name in a plan."""
_IMPAIRMENTS = tuple(ImpairmentSpec.model_fields)


class Degrade(ImpairmentSpec, Fault):
    """What is given replaces what the link does; the rest stays as it is. Delay is one way."""

    kind: ClassVar[str] = "degrade"
    link: LinkEnds
    direction: Literal["both", "forward", "backward"] = Field(
        "both", description="`forward`: only packets from the first to the second end; `backward`: only the others."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Degrade:
        if not self._changes():
            raise ValueError(f"nothing is degraded; give one of {', '.join(_IMPAIRMENTS)}")
        return self

    def claims(self, lab: Lab) -> set[str]:
        """What the link does to packets."""
        return {f"impairment of link {self._link(lab).name}"}

    def remember(self, lab: Lab) -> Memory:
        """What the link does now. One that is to be exchanged must not be down, or the like, at that moment."""
        link = self._link(lab)
        now = links.impairment(lab, link)
        wanted = self._wanted(lab, now)
        if any(one.jitter_us > one.delay_us for one in wanted):
            raise FaultError("a jitter of more than the delay would need negative delays", remedy="add `delay`")
        if any(one.loss_burst is not None and not one.loss for one in wanted):
            raise FaultError("bursts of losses need a share of packets that are lost", remedy="add `loss`")
        exchanged = any(one.needs_engine for one in wanted) and not any(one.needs_engine for one in now)
        if exchanged and lab.impair_engine(needed=True) == "wire":
            for entry in Journal(lab.folder).entries():
                if any(claim.endswith(f"of link {link.name}") for claim in entry.claims) and entry.kind != self.kind:
                    raise FaultBusy(f"link {link.name} is in the hands of fault {entry.id}", entry.id)
        return {"before": [one.model_dump(mode="json") for one in now]}

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Change both directions at once."""
        links.change(lab, self._link(lab), *self._wanted(lab, _saved(memory)))

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The link reads so."""
        self._compare(lab, self._wanted(lab, _saved(memory)))
        return ", ".join(f"{name} {value}" for name, value in self.model_dump(mode="json").items() if value)

    def heal(self, lab: Lab, memory: Memory) -> None:
        """As before."""
        links.change(lab, self._link(lab), *_saved(memory))

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """The link reads as before."""
        self._compare(lab, _saved(memory))
        return "the link is as before"

    def _changes(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _IMPAIRMENTS}
        return {_FIELDS.get(name, name): value for name, value in given.items() if value is not None}

    def _wanted(self, lab: Lab, before: tuple[Impairment, Impairment]) -> tuple[Impairment, Impairment]:
        turned = self._link(lab).a.node != self.link[0].partition(":")[0]
        affected = {
            "both": (True, True),
            "forward": (not turned, turned),
            "backward": (turned, not turned),
        }[self.direction]
        there, back = (
            one.model_copy(update=self._changes()) if hit else one for one, hit in zip(before, affected, strict=True)
        )
        return there, back

    def _compare(self, lab: Lab, wanted: tuple[Impairment, Impairment]) -> None:
        link = self._link(lab)
        found = links.impairment(lab, link)
        if found != wanted:
            raise FaultError(f"link {link.name} reads {found} after {wanted} was set")
        try:
            links.verify(lab, link)
        except TestbedError as error:
            raise FaultError(f"link {link.name} is not as it was set: {error}") from error

    def _link(self, lab: Lab) -> Link:
        return links.find(lab, *self.link)


def _saved(memory: Memory) -> tuple[Impairment, Impairment]:
    there, back = (Impairment.model_validate(one) for one in memory["before"])
    return there, back
