"""The topology language as JSON Schema (draft 2020-12), for editors and other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from testbed.model.quantities import FORMATS
from testbed.model.topology import Topology

_MAPS = ("properties", "patternProperties", "$defs")
"""Keywords whose values are mappings of names to schemas."""


def topology_schema(sections: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """The schema of a whole topology file with the given subsystems' sections."""
    everything: list[type[BaseModel]] = [Topology, *sections.values()]
    models: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in everything]
    refs, shared = models_json_schema(models)
    definitions: dict[str, Any] = shared["$defs"]
    root = definitions.pop(refs[Topology, "validation"]["$ref"].rpartition("/")[2])
    del root["properties"]["sections"]
    root["properties"] = {name: _without_null(part) for name, part in root["properties"].items()}
    for name, model in sections.items():
        ref = refs[model, "validation"]
        meaning = definitions[ref["$ref"].rpartition("/")[2]].get("description", "")
        root["properties"][name] = {"anyOf": [ref, {"type": "null"}], "description": meaning}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "testbed topology",
        **_tidy(root),
        "$defs": {name: _tidy(part, optional=True) for name, part in definitions.items()},
    }


def _tidy(schema: dict[str, Any], optional: bool = False) -> dict[str, Any]:
    """As the loader reads: no nulls for keys, no other names than the pattern allows, defaults as they are written."""
    made: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "title" or (keyword == "default" and not isinstance(value, str | int | float)):
            continue
        if keyword in _MAPS:
            nulls = keyword == "properties" and optional
            made[keyword] = {
                name: _tidy(_without_null(part) if nulls else part, optional) for name, part in value.items()
            }
        elif isinstance(value, dict):
            made[keyword] = _tidy(value, optional)
        elif isinstance(value, list):
            made[keyword] = [_tidy(part, optional) if isinstance(part, dict) else part for part in value]
        else:
            made[keyword] = value
    if "patternProperties" in made:
        made["additionalProperties"] = False
    if made.get("pattern") in FORMATS and isinstance(made.get("default"), int | float):
        made["default"] = FORMATS[made["pattern"]](made["default"])
    return made


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Optional in a model means that the key may be left out, not that it may be null."""
    parts = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    if len(parts) != 1:
        return {**schema, "anyOf": parts} if parts else schema
    return {**parts[0], **{keyword: value for keyword, value in schema.items() if keyword != "anyOf"}}
