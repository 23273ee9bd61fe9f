"""Document to topology. Every mistake is found: what is sound beside a mistake is kept and checked further."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from testbed.errors import Path, Problem
from testbed.model.document import Document
from testbed.model.explain import explain_all, no_value, unknown
from testbed.model.topology import DefaultsSpec, LinkSpec, NodeSpec, Topology
from testbed.model.words import check_name

CORE_KEYS = tuple(key for key in Topology.model_fields if key != "sections")
"""The top-level keys that are not subsystems."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Validated:
    """The topology and what is wrong with it. If something is, the topology holds what is sound."""

    topology: Topology
    problems: list[Problem] = field(default_factory=list)
    doubtful: set[Path] = field(default_factory=set)
    """Nodes, links, sections and other top-level parts with a mistake in them."""
    link_numbers: list[int] = field(default_factory=list)
    """For each link of ``topology`` its number in the document."""


def validate(document: Document, sections: Mapping[str, type[BaseModel]]) -> Validated:
    """Check ``document``, whose root is a mapping, against the core's models and those of the ``sections``."""
    data: dict[str, Any] = document.data
    problems = [
        Problem((key,), f"unknown key `{key}`", unknown(key, [*CORE_KEYS, *sections]), at_key=True)
        for key in data
        if key not in CORE_KEYS and key not in sections
    ]
    problems += _nulls(data, (), sections)
    core = {key: data[key] for key in CORE_KEYS if data.get(key) is not None}
    specs: dict[str, Any] = {}
    for name, model in sections.items():
        if name in data:
            problems += _errors(document, model, (name,), data[name] if data[name] is not None else {})
            spec = _sound(model, data[name] if data[name] is not None else {})
            specs.update({} if spec is None else {name: spec})
    try:
        topology = Topology.model_validate({**core, "sections": specs})
        numbers = list(range(len(topology.links)))
    except ValidationError:
        problems += _errors(document, Topology, (), core)
        topology, numbers = _sound_topology(core, specs)
    doubtful = {item_of(problem.path) for problem in problems}
    return Validated(topology, problems, doubtful, numbers)


def item_of(path: Path) -> Path:
    """The node, link, section (or item of one that is a list) or other top-level part that ``path`` lies in."""
    listed = len(path) > 1 and isinstance(path[1], int)
    return path[:2] if listed or path[:1] == ("nodes",) else path[:1]


def _nulls(value: Any, path: Path, sections: Mapping[str, Any]) -> list[Problem]:
    """Keys without a value. Only a plain node and a section may be so, and then stand for their defaults."""
    if isinstance(value, dict):
        return [problem for key, inner in value.items() for problem in _nulls(inner, (*path, key), sections)]
    if isinstance(value, list):
        return [problem for index, inner in enumerate(value) for problem in _nulls(inner, (*path, index), sections)]
    may_be = (len(path) == 2 and path[0] == "nodes") or (len(path) == 1 and path[0] in sections)
    if value is not None or may_be or not path or isinstance(path[-1], int):
        return []
    return [no_value(path)]


def _errors(document: Document, model: type[BaseModel], base: Path, value: Any) -> list[Problem]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return explain_all(error, document, model, base)
    return []


def _sound(model: type[Model], value: Any) -> Model | None:
    """What ``value`` says without the keys that are wrong; None if even that is not valid."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = {item["loc"][0] for item in error.errors() if item["loc"]}
    rest = {key: inner for key, inner in value.items() if key not in wrong} if isinstance(value, dict) else {}
    try:
        return model.model_validate(rest)
    except ValidationError:
        return None


def _sound_topology(core: Mapping[str, Any], specs: dict[str, Any]) -> tuple[Topology, list[int]]:
    nodes: dict[str, NodeSpec | None] = {}
    given = core.get("nodes")
    for name, value in given.items() if isinstance(given, dict) else ():
        try:
            check_name(name)
        except ValueError:
            continue
        nodes[name] = None if value is None else _sound(NodeSpec, value)
    links: list[LinkSpec] = []
    numbers: list[int] = []
    listed = core.get("links")
    for number, value in enumerate(listed if isinstance(listed, list) else ()):
        link = _sound(LinkSpec, value)
        if link is not None:
            links.append(link)
            numbers.append(number)
    topology = Topology(
        name="unnamed",
        defaults=_sound(DefaultsSpec, core.get("defaults", {})) or DefaultsSpec(),
        nodes=nodes,
        links=tuple(links),
        sections=specs,
    )
    return topology, numbers
