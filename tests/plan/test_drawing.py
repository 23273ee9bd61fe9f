"""Layout and drawing of plans."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.plan.load import load_topology
from testbed.plan.types import Plan
from testbed.report.graph import draw
from testbed.report.layout import place_nodes

ROOT = Path(__file__).parents[2]
Planned = Callable[[str], Plan]


@given(st.integers(1, 25), st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=40), st.data())
def test_no_two_nodes_stand_on_one_spot(size: int, extra: list[tuple[int, int]], data: st.DataObject) -> None:
    graph: dict[str, list[str]] = {f"n{number}": [] for number in range(size)}
    tree = [(data.draw(st.integers(0, number - 1)), number) for number in range(1, size)]
    for a, b in tree + [(a % size, b % size) for a, b in extra]:
        if a != b and f"n{b}" not in graph[f"n{a}"]:
            graph[f"n{a}"].append(f"n{b}")
            graph[f"n{b}"].append(f"n{a}")
    places = place_nodes(graph, edge=2.0, spacing=1.0, label=0.2)
    assert set(places) == set(graph)
    for one, other in itertools.combinations(places.values(), 2):
        assert math.hypot(one.x - other.x, one.y - other.y) > 0.05
    assert places == place_nodes(graph, edge=2.0, spacing=1.0, label=0.2)


def test_labels_of_a_large_star_do_not_touch() -> None:
    leaves = [f"h{number}" for number in range(77)]
    places = place_nodes({"core": leaves, **{leaf: ["core"] for leaf in leaves}}, edge=1.3, spacing=0.17, label=1.0)
    rim = [places[leaf] for leaf in leaves]
    assert min(math.hypot(a.x - b.x, a.y - b.y) for a, b in itertools.combinations(rim, 2)) > 0.15


def test_parts_that_are_not_connected_stand_side_by_side() -> None:
    places = place_nodes({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}, edge=1.0, spacing=1.0, label=0.1)
    assert len({(round(place.x, 2), round(place.y, 2)) for place in places.values()}) == 4


@pytest.mark.parametrize("name", ["demo", "onion-paper"])
def test_a_drawing_names_every_node_and_its_address(tmp_path: Path, name: str) -> None:
    _, plan = load_topology(ROOT / "topologies" / f"{name}.yaml")
    draw(plan, tmp_path / "a.svg")
    draw(plan, tmp_path / "b.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text(), "the same plan, the same file"
    text = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    for node in plan.nodes:
        assert re.search(rf"\b{node.name}\b", text)
        assert node.name == "core" or str(plan.address(node.name)) in text


def test_text_from_files_is_no_markup(tmp_path: Path, planned: Planned) -> None:
    draw(planned("description: '$x_{1$ <b>&amp; [red]'\nnodes: {a: }\n"), tmp_path / "a.svg")
    assert "$x_{1$ &lt;b&gt;&amp;amp; [red]" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_formats(tmp_path: Path, planned: Planned, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"x.{suffix}"
    draw(
        planned("nodes: {s: {kind: switch}, a: , b: {runtime: container}}\nlinks: [[a, s], [b, s], [a, b], [a, b]]\n"),
        path,
    )
    assert path.read_bytes().startswith(magic)


def test_files_that_cannot_be_drawn(tmp_path: Path, planned: Planned) -> None:
    plan = planned("nodes: {a: }\n")
    with pytest.raises(TestbedError, match="suffix"):
        draw(plan, tmp_path / "x.jpeg")
    with pytest.raises(TestbedError, match="cannot write"):
        draw(plan, tmp_path / "none" / "x.svg")
