"""The JSON Schema says the same as the loader about what a file may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.cli import main
from testbed.model.document import parse_document

ROOT = Path(__file__).parents[2]
TOPOLOGIES = sorted((ROOT / "topologies").glob("*.yaml"))
WRONG_IN_SHAPE = [
    *(ROOT / "tests" / "errors").glob("C4-*.yaml"),
    *(ROOT / "tests" / "errors").glob("C13-*.yaml"),
    *(ROOT / "tests" / "errors").glob("C2-node-name-[!r]*.yaml"),
    *(ROOT / "tests" / "errors" / f"{name}.yaml" for name in (
        "C3-number-for-text", "endpoint-only-one", "endpoints-three", "endpoints-missing", "key-without-value",
        "kind-unknown", "mapping-where-a-list-belongs", "mtu-not-a-whole-number", "mtu-out-of-range", "name-missing",
        "onions-not-a-mapping", "onions-too-many-instances", "onions-unknown-way-to-publish", "service-without-command",
        "text-where-a-mapping-belongs", "tor-counts",
    )),
]  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    from testbed.model.schema import topology_schema
    from testbed.subsystem import subsystems

    return topology_schema({name: subsystem.spec for name, subsystem in subsystems().items()})


def test_the_command_prints_a_valid_schema(schema: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == schema
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_it_takes_every_topology(schema: dict[str, Any], path: Path) -> None:
    data = parse_document(path.read_text()).data
    assert [error.message for error in Draft202012Validator(schema).iter_errors(data)] == []


@pytest.mark.parametrize("path", sorted(WRONG_IN_SHAPE), ids=lambda path: path.stem)
def test_it_refuses_what_is_wrong_in_shape(schema: dict[str, Any], path: Path) -> None:
    assert not Draft202012Validator(schema).is_valid(parse_document(path.read_text()).data)


def test_every_key_has_a_meaning_and_defaults_are_as_written(schema: dict[str, Any]) -> None:
    for name, definition in {"Topology": schema, **schema["$defs"]}.items():
        for key, part in definition.get("properties", {}).items():
            if name in ("ImpairmentSpec", "NodeSpec", "RouteSpec", "ServiceSpec", "DefaultsSpec"):
                assert part.get("description") or "$ref" in part, f"{name}.{key}"
            if "pattern" in part and "default" in part:
                assert Draft202012Validator(part).is_valid(part["default"]), f"{name}.{key}"
