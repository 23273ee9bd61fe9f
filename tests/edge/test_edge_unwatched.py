"""``redirect: {health: false}``: nobody watches. It is read, planned and in the schema; null is not."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.errors import TopologyError
from testbed.model.document import parse_document
from testbed.model.schema import topology_schema
from testbed.plan.load import load_text
from testbed.plan.types import Plan
from testbed.subsystem import subsystems

CAMPUS = """
name: campus
edge:
  redirect: {health: %s}
  isps: {telecom: {prefixes: [61.128.0.0/16], public: 61.128.0.80}}
  sites: {www.campus.test: {address: 202.112.10.1}}
"""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return topology_schema({name: subsystem.spec for name, subsystem in subsystems().items()})


def fits(schema: dict[str, Any], health: str) -> bool:
    """Whether the schema takes it."""
    return Draft202012Validator(schema).is_valid(parse_document(CAMPUS % health).data)


def test_nobody_watches(schema: dict[str, Any]) -> None:
    topology, plan = load_text(CAMPUS % "false")
    assert topology.sections["edge"].redirect.health is None
    assert fits(schema, "false")
    again = subsystems()["edge"].spec.model_validate(Plan.model_validate_json(plan.model_dump_json()).sections["edge"])
    assert again.redirect.health is None


@pytest.mark.parametrize(
    ("health", "message"),
    [("null", "`health` has no value"), ("true", "`health` must be a mapping"), ("0", "`health` must be a mapping")],
)
def test_what_does_not_switch_it_off(schema: dict[str, Any], health: str, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        load_text(CAMPUS % health)
    assert message in str(caught.value)
    assert not fits(schema, health)
