"""docs/topology.md says what is: its examples work, and it names every key and unit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from testbed.model import quantities
from testbed.model.document import MAX_DEPTH
from testbed.model.topology import Topology
from testbed.model.words import MAX_NAME, RESERVED_INTERFACES, RESERVED_NAMES
from testbed.plan.load import MAX_BYTES, load_text
from testbed.plan.names import kernel_ifname
from testbed.subsystem import subsystems

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "topology.md").read_text()
DESCRIBED = TEXT + "".join((ROOT / "docs" / name).read_text() for name in ("edge.md", "pool.md"))
"""Where keys may be described; sections with a page of their own have them there."""


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def models(schema: type[BaseModel]) -> dict[str, Any]:
    definitions = schema.model_json_schema()
    return {"": definitions, **definitions.get("$defs", {})}


def test_the_example_is_a_topology() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert examples
    for example in examples:
        load_text(example)


def test_every_key_is_described() -> None:
    for model in (Topology, *(subsystem.spec for subsystem in subsystems().values())):
        for definition in models(model).values():
            for key in definition.get("properties", {}):
                assert key == "sections" or f"`{key}`" in DESCRIBED, key


def test_keys_of_tables_exist_and_defaults_are_right() -> None:
    for name in ("tor", "onions"):
        properties = {
            key: part
            for definition in models(subsystems()[name].spec).values()
            for key, part in definition.get("properties", {}).items()
        }
        for key, default in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section(f"`{name}`"), re.MULTILINE):
            assert key in properties
            written = properties[key].get("default")
            if isinstance(written, bool):
                assert default.strip() == str(written).lower(), key
            elif isinstance(written, int):
                pattern = properties[key].get("pattern")
                parse = quantities.parse_duration_us if pattern else int
                assert parse(default.strip()) == written, key
            elif isinstance(written, str):
                assert default.strip() == written


def test_units_and_limits_are_as_said() -> None:
    table = section("Quantities")
    for kind, title in (("Duration", "duration"), ("Rate", "rate"), ("Size", "size"), ("Fraction", "percentage")):
        row = next(line for line in table.splitlines() if line.startswith(f"| {title} |"))
        adapter: TypeAdapter[Any] = TypeAdapter(getattr(quantities, kind))
        units = set(re.findall(r"`([A-Za-zµ%]+)`", row))
        pattern = adapter.json_schema()["pattern"]
        assert units == set(re.search(r"\(([^()]*)\)\$$", pattern)[1].split("|"))  # type: ignore[index]
        for unit in units:
            adapter.validate_python(f"8{unit}")
    assert f"{MAX_BYTES // 1024} KiB" in TEXT
    assert f"nested at most {MAX_DEPTH} deep" in TEXT
    names = section("Names")
    assert f"most {MAX_NAME} characters" in " ".join(names.split())
    assert all(f"`{name}`" in names for name in (*RESERVED_NAMES, *RESERVED_INTERFACES))
    assert re.fullmatch(r"to-the~[a-z2-7]{8}", kernel_ifname("to-the-client-with-a-long-name"))


def test_the_error_example_is_what_is_printed() -> None:
    name, example = re.findall(r"<!-- tests/errors/(.*?) -->\n```\n(.*?)```", TEXT, re.DOTALL)[0]
    assert (ROOT / "tests" / "errors" / name).read_text().startswith(example)
