"""The section ``timeline`` of a topology: which faults when; and what it comes to, drawn by seed. Pure.

timeline:
  - {at: +10s, fault: link-down, link: [web, core], for: 5s}
  - {at: +30s, fault: kill, node: web, for: 2s, every: 10s, times: 3}
  - {when: {event: ready}, at: +1s, fault: pause, node: dns, for: 3s}
  - random:
      faults:
        - {fault: pause, node: web, for: 2s}
        - {fault: link-down, link: [dns, core], for: 1s}
      min: 3s
      max: 10s
      until: +5min
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, RootModel, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.errors import Path, Problem, TestbedError
from testbed.faults.base import Fault, fault_class, known_faults
from testbed.faults.fields import PerSecond, limits
from testbed.model.document import Document
from testbed.model.explain import explain_all, unknown
from testbed.model.quantities import Duration, Offset, format_duration_us, format_offset_us
from testbed.model.topology import Spec
from testbed.plan.types import Plan

_PLAIN = re.compile(r"[A-Za-z0-9+.%/-]+")
"""Text that YAML takes for text wherever it stands, once it is known not to be a number or truth value."""


class Condition(Spec):
    """An event of the lab. The time of the entry counts from there."""

    event: str = Field(min_length=1, description="Kind of the event, as in the lab's events, such as `ready`.")
    node: str | None = Field(None, description="Only one of this node.")


class FaultSpec(Spec):
    """A fault with its settings, which stand beside these keys."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    fault: str = Field(description="Its kind; `testbed fault list` shows all.")
    hold: Duration | None = Field(None, alias="for", description="How long it holds; otherwise to the end.")

    def settings(self) -> dict[str, Any]:
        """The fault's own settings, as they are written."""
        return dict(self.model_extra or {})


class RandomSpec(Spec):
    """Faults drawn one after the other by the topology's seed. None is drawn while it holds already."""

    faults: tuple[FaultSpec, ...] = Field(min_length=1, description="What to draw from.")
    min: Duration | None = Field(None, description="Shortest time from one fault to the next.")
    max: Duration | None = Field(None, description="Longest time from one fault to the next; any between is as likely.")
    rate: PerSecond | None = Field(None, description="Instead of `min` and `max`: mean number (Poisson process).")
    until: Offset = Field(description="None is injected later, counted from the start.")


class RandomEntry(Spec):
    """An entry that draws."""

    random: RandomSpec
    at: Offset = Field(0, description="The first time between faults begins here.")


class FaultEntry(FaultSpec):
    """An entry with one fault."""

    at: Offset | None = Field(None, description="When, counted from the start or from the event.")
    when: Condition | None = Field(None, description="Begin to count at an event.")
    every: Annotated[Duration, limits(format_duration_us, 1)] | None = Field(
        None, description="Again, so long after the last time."
    )
    times: Annotated[int, Field(strict=True, ge=1)] | None = Field(None, description="How often in all.")


Entry = FaultEntry | RandomEntry


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a schedule."""

    at_us: int
    """Microseconds from the start, or from the event."""
    fault: str
    settings: dict[str, Any]
    hold_us: int | None
    """None: to the end."""
    when: Condition | None = None
    drawn: bool = False
    """By chance; it may be left out where another fault is in its way."""


class TimelineSpec(RootModel[tuple[Any, ...]]):
    """Faults at times, at events, repeated, or by chance."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "array", "items": {"anyOf": list(_entry_schemas())}, "description": cls.__doc__}


def parse(data: Sequence[Any]) -> tuple[list[Entry], list[Problem]]:
    """The entries of a timeline that are sound, and all that is wrong with the others."""
    document = Document(data={"timeline": list(data)})
    entries: list[Entry] = []
    problems: list[Problem] = []
    for number, value in enumerate(data):
        base: Path = ("timeline", number)
        model: type[Entry] = RandomEntry if isinstance(value, dict) and "random" in value else FaultEntry
        try:
            entry = model.model_validate(value)
        except ValidationError as error:
            problems += explain_all(error, document, model, base)
            continue
        found = list(
            _random_problems(entry, document, base)
            if isinstance(entry, RandomEntry)
            else _entry_problems(entry, document, base)
        )
        problems += found
        if not found:
            entries.append(entry)
    return entries, problems


def misfits(data: Sequence[Any], plan: Plan) -> Iterator[Problem]:
    """What of a timeline's faults does not fit the plan."""
    for number, value in enumerate(data):
        for entry in parse([value])[0]:
            base: Path = ("timeline", number)
            if isinstance(entry, FaultEntry):
                specs: list[tuple[Path, FaultSpec]] = [(base, entry)]
                if entry.when and entry.when.node and entry.when.node not in {node.name for node in plan.nodes}:
                    path = (*base, "when", "node")
                    yield Problem(
                        path, f"there is no node {entry.when.node!r}", "name one of its nodes", assumes="nodes"
                    )
            else:
                specs = [((*base, "random", "faults", index), one) for index, one in enumerate(entry.random.faults)]
            for path, spec in specs:
                for problem in _make(spec).check(plan):
                    known: Literal["nodes", "links"] = "links" if problem.path[:1] == ("link",) else "nodes"
                    yield replace(problem, path=(*path, *problem.path), assumes=known)


def schedule(entries: Sequence[Entry], seed: int) -> list[Planned]:
    """What a timeline comes to: in the order of time, those that wait for an event last. The same for the same seed."""
    planned: list[Planned] = []
    for number, entry in enumerate(entries):
        if isinstance(entry, RandomEntry):
            planned += _draw(entry, random.Random(f"timeline {seed} {number}"))
            continue
        for turn in range(entry.times or 1):
            at = (entry.at or 0) + turn * (entry.every or 0)
            planned.append(Planned(at, entry.fault, entry.settings(), entry.hold, entry.when))
    return sorted(planned, key=lambda one: (one.when is not None, one.at_us))


def timeline_text(planned: Sequence[Planned]) -> str:
    """A schedule as a ``timeline:`` that reproduces it."""
    lines = ["timeline:"]
    for one in planned:
        parts: dict[str, Any] = {"at": format_offset_us(one.at_us)}
        if one.when:
            parts["when"] = one.when.model_dump(exclude_none=True)
        parts |= {"fault": one.fault, **one.settings}
        if one.hold_us is not None:
            parts["for"] = format_duration_us(one.hold_us)
        lines.append(f"  - {_flow(parts)}")
    return "\n".join(lines) + "\n" if planned else "timeline: []\n"


def _draw(entry: RandomEntry, chance: random.Random) -> Iterator[Planned]:
    spec = entry.random
    free_from = [0] * len(spec.faults)
    now = entry.at
    while True:
        if spec.rate is not None:
            now += max(1, round(chance.expovariate(spec.rate) * 1e6))
        else:
            assert spec.min is not None
            assert spec.max is not None
            now += chance.randint(spec.min, spec.max)
        if now >= spec.until:
            return
        free = [index for index, moment in enumerate(free_from) if moment <= now]
        if not free:
            continue
        chosen = chance.choice(free)
        fault = spec.faults[chosen]
        lasting = not fault_class(fault.fault).momentary
        free_from[chosen] = (now + fault.hold if fault.hold is not None else spec.until) if lasting else now
        yield Planned(now, fault.fault, fault.settings(), fault.hold, drawn=True)


def _make(spec: FaultSpec) -> Fault:
    return fault_class(spec.fault).model_validate(spec.settings())


def _entry_problems(entry: FaultEntry, document: Document, base: Path) -> Iterator[Problem]:
    if entry.at is None and entry.when is None:
        yield Problem(base, "it is not said when", "add `at: +10s`, or `when: {event: ...}`")
    if (entry.every is None) != (entry.times is None):
        there, lacking = ("every", "times") if entry.times is None else ("times", "every")
        yield Problem((*base, there), f"`{there}` needs `{lacking}` beside it", f"add `{lacking}`", at_key=True)
    if entry.every is not None and entry.hold is not None and entry.hold >= entry.every:
        message = f"it still holds when it is to come again, {format_duration_us(entry.every)} later"
        yield Problem((*base, "for"), message, "make `for` shorter than `every`")
    yield from _settings_problems(entry, document, base)


def _random_problems(entry: RandomEntry, document: Document, base: Path) -> Iterator[Problem]:
    base = (*base, "random")
    spec = entry.random
    span = spec.min is not None and spec.max is not None
    if span == (spec.rate is not None) or (spec.rate is not None and (spec.min, spec.max) != (None, None)):
        yield Problem(base, "it is not said how often", "give `min` and `max`, or `rate`", at_key=True)
    elif span and not 0 < spec.min <= spec.max:  # type: ignore[operator]
        yield Problem((*base, "min"), "`min` is not between 0 and `max`", "make it shorter, but more than 0")
    if spec.until <= entry.at:
        yield Problem((*base, "until"), "it ends before it begins", f"make it later than {format_offset_us(entry.at)}")
    for index, fault in enumerate(spec.faults):
        yield from _settings_problems(fault, document, (*base, "faults", index))


def _settings_problems(spec: FaultSpec, document: Document, base: Path) -> Iterator[Problem]:
    try:
        fault = fault_class(spec.fault)
    except TestbedError as error:
        yield Problem((*base, "fault"), error.what, error.remedy)
        return
    if fault.combines:
        yield Problem((*base, "fault"), f"`{spec.fault}` only wraps other faults", "use `for`, `every` and `times`")
        return
    keys = [*type(spec).model_fields, *fault.model_fields]
    keys = [{"hold": "for"}.get(key, key) for key in keys]
    strange = [key for key in spec.settings() if key not in fault.model_fields]
    for key in strange:
        yield Problem((*base, key), f"fault {spec.fault} has no setting `{key}`", unknown(key, keys), at_key=True)
    if fault.momentary and spec.hold is not None:
        yield Problem((*base, "for"), f"fault {spec.fault} is over at once", "remove `for`", at_key=True)
    settings = {key: value for key, value in spec.settings().items() if key not in strange}
    try:
        fault.model_validate(settings)
    except ValidationError as error:
        yield from explain_all(error, document, fault, base)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        from testbed.model.scalars import read_plain

        plain = _PLAIN.fullmatch(value) and read_plain(value)[:2] == (value, "")
        return value if plain else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _entry_schemas() -> Iterator[JsonSchemaValue]:
    timing = FaultEntry.model_json_schema(by_alias=True)
    condition = timing.pop("$defs")["Condition"]
    shared = {key: value for key, value in timing["properties"].items() if key != "fault"}
    shared["when"] = {**condition, "description": shared["when"]["description"]}
    choices = []
    for kind, fault in known_faults().items():
        if fault.combines:
            continue
        own = fault.model_json_schema()
        properties = {"fault": {"const": kind}, **own["properties"]}
        required = ["fault", *own.get("required", ())]
        description = " ".join((fault.__doc__ or "").split())
        entry = {"type": "object", "additionalProperties": False, "description": description, "required": required}
        hold = {"for": shared["for"]}
        choices.append({**entry, "properties": {**properties, **hold}})
        yield {**entry, "properties": {**properties, **shared}}
    drawing = RandomEntry.model_json_schema()
    definitions = drawing.pop("$defs")
    chance = definitions["RandomSpec"]
    chance["properties"]["faults"]["items"] = {"anyOf": choices}
    drawing["properties"]["random"] = chance
    yield drawing
