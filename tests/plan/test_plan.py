"""The plan as a whole: deterministic, self-contained JSON, right about impairments, fast enough to be made anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.model.topology import DefaultsSpec, LinkSpec, Topology
from testbed.plan.builder import PlanBuilder
from testbed.plan.expand import expand
from testbed.plan.load import load_text, load_topology
from testbed.plan.types import Impairment, Plan

ROOT = Path(__file__).parents[2]
TOPOLOGIES = sorted((ROOT / "topologies").glob("*.yaml"))
Planned = Callable[[str], Plan]


def star(hosts: int) -> Topology:
    names = [f"h{number}" for number in range(hosts)]
    links = tuple(LinkSpec(endpoints=("core", name)) for name in names)
    return Topology(name="star", nodes=dict.fromkeys(names), links=links)


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_a_plan_is_what_its_json_says(path: Path) -> None:
    _, plan = load_topology(path)
    plan.node(plan.nodes[0].name), plan.links_of(plan.nodes[0].name)  # caches are no part of what is compared
    again = Plan.model_validate_json(plan.model_dump_json())
    assert again == plan
    assert again.digest() == plan.digest()


impairment = st.fixed_dictionaries(
    {},
    optional={
        "delay": st.integers(1, 10**6).map(lambda number: f"{number}us"),
        "rate": st.integers(8, 10**10).map(lambda number: f"{number}bit"),
        "loss": st.integers(0, 1000).map(lambda number: f"{number / 10}%"),
    },
)


@given(impairment, st.integers(1280, 65535), st.integers(0, 2**63 - 1), st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_plan_is_what_its_json_says(link: dict[str, str], mtu: int, seed: int, description: str) -> None:
    described = "".join(char for char in description if not 0xD800 <= ord(char) <= 0xDFFF)
    topology = Topology.model_validate(
        {
            "name": "lab",
            "seed": seed,
            "description": described,
            "nodes": {"a": {"services": {"x": {"command": ["run", described], "env": {"A": described}}}}, "b": None},
            "links": [{"endpoints": ["a", "b"], **link, "mtu": mtu}, ["b", "core"]],
        }
    )
    plan, problems = expand(topology)
    assert problems == []
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert expand(topology)[0].digest() == plan.digest()


def test_the_digest_is_the_same_in_another_process() -> None:
    """Whatever the order of sets and the hash seed there."""
    path = ROOT / "topologies" / "onion-paper.yaml"
    code = f"from testbed.plan.load import load_topology; print(load_topology({str(path)!r})[1].digest())"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == load_topology(path)[1].digest()


def test_the_digest_changes_with_anything(planned: Planned) -> None:
    plans = [
        planned("nodes: {a: , b: }\nlinks: [[a, b]]\n"),
        planned("seed: 1\nnodes: {a: , b: }\nlinks: [[a, b]]\n"),
        planned("nodes: {a: , b: }\nlinks: [{endpoints: [a, b], delay: 1ms}]\n"),
        planned("nodes: {b: , a: }\nlinks: [[a, b]]\n"),
    ]
    assert len({plan.digest() for plan in plans}) == len(plans)


def test_C12_delay_is_one_way_in_each_direction_and_directions_override(planned: Planned) -> None:
    plan = planned(
        "defaults: {link: {rate: 10mbit, mtu: 1400}}\nnodes: {a: , b: , c: }\n"
        "links:\n  - endpoints: [a, b]\n    delay: 20ms\n    loss: 1%\n    backward: {delay: 50ms, rate: 1mbit}\n"
        "  - {endpoints: [b, c], mtu: 9000}\n"
    )
    first, second = plan.links
    assert first.forward == Impairment(delay_us=20_000, loss=0.01, rate_bps=10_000_000)
    assert first.backward == Impairment(delay_us=50_000, loss=0.01, rate_bps=1_000_000)
    assert (first.mtu, second.mtu) == (1400, 9000)
    assert not second.forward.needs_engine
    assert first.forward.needs_engine


def test_both_directions_of_a_subsystems_link(planned: Planned) -> None:
    plan = planned("tor:\nonions: {shop: {link: {rate: 8mbit, backward: {rate: 1mbit}, mtu: 1280}}}\n")
    (link,) = plan.links_of("shop1")
    assert (link.a.node, link.forward.rate_bps, link.backward.rate_bps, link.mtu) == (
        "shop1",
        8_000_000,
        1_000_000,
        1280,
    )


def test_routers_and_switches_are_processes_whatever_the_default(planned: Planned) -> None:
    plan = planned("defaults: {runtime: container}\nnodes: {a: , s: {kind: switch}}\nlinks: [[a, s], [s, core]]\n")
    assert {node.name: node.runtime for node in plan.nodes} == {"a": "container", "s": "process", "core": "process"}


def test_links_may_name_nodes_that_come_later() -> None:
    build = PlanBuilder("lab", 0, "", DefaultsSpec())
    build.link("a", "b", ("x",))
    build.node("b", ("x",))
    build.node("a", ("x",))
    assert [link.name for link in build.build().links] == ["a:eth0--b:eth0"]
    assert build.problems == []


def test_what_a_subsystem_stores_is_plain_json() -> None:
    build = PlanBuilder("lab", 0, "", DefaultsSpec())
    build.section("x", {"pair": (1, 2)})
    assert build.build().sections == {"x": {"pair": [1, 2]}}
    with pytest.raises(ValueError, match="JSON"):
        build.section("x", {"nan": float("nan")})


def test_sections_can_be_validated_again() -> None:
    from testbed.subsystem import subsystems

    topology, plan = load_text(
        "name: lab\ntor: {link: {delay: 7ms}}\nonions: {shop: {stagger: 3s, content: {size: 5kB}}}\n"
    )
    for name, data in plan.sections.items():
        assert subsystems()[name].spec.model_validate(data).model_dump() == topology.sections[name].model_dump()


def calls(hosts: int) -> int:
    """Function calls that it takes to expand a star; unlike seconds the same every time."""
    topology, count = star(hosts), 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        expand(topology)
    finally:
        sys.setprofile(None)
    return count


def test_work_grows_with_the_number_of_hosts_and_not_faster() -> None:
    expand(star(1))  # what is done once only
    assert calls(1000) < 11 * calls(100)
