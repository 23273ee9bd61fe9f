"""Faults made of faults: one that ends by itself, several at once, one again and again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer

from testbed.errors import Problem, WaitTimeout
from testbed.faults.base import Fault, FaultError, Memory, make_fault
from testbed.faults.faults import Faults
from testbed.faults.tools import helpers
from testbed.lab.events import Tail
from testbed.plan.types import Plan

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

_TO_BEGIN = 60.0
"""Seconds for a helper program to start and inject for the first time, on a busy machine."""


def _nested(value: Any) -> Any:
    return make_fault(value["kind"], value["settings"]) if isinstance(value, dict) else value


def _plain(fault: Fault) -> dict[str, Any]:
    return {"kind": fault.kind, "settings": fault.model_dump(mode="json")}


Nested = Annotated[Fault, BeforeValidator(_nested), PlainSerializer(_plain, return_type=dict, when_used="always")]


class Cycle(Fault):
    """Base of faults that inject another one again and again, in a program of their own."""

    @abstractmethod
    def unit(self) -> Fault:
        """The fault that is injected each time."""

    @abstractmethod
    def timing(self) -> tuple[float, int, float]:
        """Seconds from one injection to the next, how many, and seconds for which each holds."""

    def claims(self, lab: Lab) -> set[str]:
        """What the other fault claims, also while it does not hold."""
        return self.unit().claims(lab)

    def subject(self) -> str:
        """That of the other fault."""
        return self.unit().subject()

    def inject(self, lab: Lab, memory: Memory) -> None:
        """Start the program, and wait until it has injected once."""
        every, times, hold = self.timing()
        unit = self.unit()
        job = {"lab": lab.name, "parent": memory["id"], "fault": unit.kind, "settings": unit.model_dump(mode="json")}
        events = Tail(lab.folder)
        helpers.start(lab, memory, "cycle", {**job, "every": every, "times": times, "hold": hold})
        deadline = time.monotonic() + _TO_BEGIN
        while not any(_has_taken(event, memory["id"]) for event in events.new()):
            if not helpers.find(lab, memory):
                raise FaultError(f"the first {unit.kind} failed: {helpers.last_words(lab, memory)}")
            if time.monotonic() > deadline:
                raise WaitTimeout(f"the first {unit.kind}", _TO_BEGIN, helpers.last_words(lab, memory))
            time.sleep(0.01)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """The first injection was verified; ``inject`` has waited for that."""
        every, times, _ = self.timing()
        return f"the first of {times}, every {every:g} s"

    def heal(self, lab: Lab, memory: Memory) -> None:
        """End the program, then heal what it left."""
        helpers.end(lab, memory)
        Faults(lab, parent=memory["id"]).heal_parts(memory["id"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """Neither the program nor a fault of its is left."""
        helpers.verify_gone(lab, memory)
        return _no_parts(lab, memory)


def _has_taken(event: dict[str, Any], parent: str) -> bool:
    return event["kind"] == "fault" and event.get("parent") == parent and event["phase"] == "verified"


def _no_parts(lab: Lab, memory: Memory) -> str:
    if left := [entry.id for entry in Faults(lab).entries() if entry.parent == memory["id"]]:
        raise FaultError(f"not healed: {', '.join(left)}")
    return "all parts are healed"


class Repeated(Cycle):
    """A fault that comes ``times`` times, one beginning ``every`` so many seconds after the other."""

    kind: ClassVar[str] = "repeated"
    combines: ClassVar[bool] = True
    fault: Nested
    every: float = Field(gt=0)
    times: int = Field(gt=0)
    hold: float | None = Field(None, ge=0)

    def __init__(self, fault: Any, every: float, times: int, hold: float | None = None) -> None:
        """``hold``: seconds for which it holds each time; otherwise half of ``every``."""
        super().__init__(fault=fault, every=every, times=times, hold=hold)  # type: ignore[call-arg]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """As the fault."""
        yield from _inside(("fault",), self.fault, plan)

    def unit(self) -> Fault:
        """The fault."""
        return self.fault

    def timing(self) -> tuple[float, int, float]:
        """As given."""
        return self.every, self.times, self.every / 2 if self.hold is None else self.hold


class TimedOut(Cycle):
    """A fault that is healed after so many seconds, even if whoever injected it is gone by then."""

    kind: ClassVar[str] = "timed-out"
    combines: ClassVar[bool] = True
    fault: Nested
    seconds: float = Field(gt=0)

    def __init__(self, fault: Any, seconds: float) -> None:
        super().__init__(fault=fault, seconds=seconds)  # type: ignore[call-arg]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """As the fault."""
        yield from _inside(("fault",), self.fault, plan)

    def unit(self) -> Fault:
        """The fault."""
        return self.fault

    def timing(self) -> tuple[float, int, float]:
        """Once."""
        return self.seconds, 1, self.seconds


class Together(Fault):
    """Several faults that hold at the same time. If one does not take, none does."""

    kind: ClassVar[str] = "together"
    combines: ClassVar[bool] = True
    faults: Annotated[tuple[Nested, ...], Field(min_length=1)]

    def __init__(self, faults: Sequence[Any]) -> None:
        super().__init__(faults=tuple(faults))  # type: ignore[call-arg]

    def check(self, plan: Plan) -> Iterator[Problem]:
        """As each of the faults."""
        for index, fault in enumerate(self.faults):
            yield from _inside(("faults", index), fault, plan)

    def inject(self, lab: Lab, memory: Memory) -> None:
        """One after the other; each is verified."""
        parts = Faults(lab, parent=memory["id"])
        for fault in self.faults:
            parts.inject(fault)

    def verify(self, lab: Lab, memory: Memory) -> str:
        """Each that lasts is active."""
        active = [entry.id for entry in Faults(lab).entries() if entry.parent == memory["id"]]
        if len(active) != sum(not fault.momentary for fault in self.faults):
            raise FaultError(f"only these hold: {', '.join(active) or 'none'}")
        return ", ".join(active)

    def heal(self, lab: Lab, memory: Memory) -> None:
        """The last first."""
        Faults(lab, parent=memory["id"]).heal_parts(memory["id"])

    def verify_healed(self, lab: Lab, memory: Memory) -> str:
        """None is left."""
        return _no_parts(lab, memory)


def _inside(path: tuple[str | int, ...], fault: Fault, plan: Plan) -> Iterator[Problem]:
    for problem in fault.check(plan):
        yield replace(problem, path=(*path, *problem.path))
