"""The pure part of timelines: what one comes to is the same for the same seed, and can be written down again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.faults.base import TIMING, known_faults
from testbed.faults.timeline import FaultEntry, Planned, TimelineSpec, parse, schedule, timeline_text
from testbed.plan.load import load_text

HEAD = "name: t\nnodes: {a: {services: {s: {command: [sleep, '9']}}}, b: }\nlinks: [[a, core], [b, core]]\n"
CUT = {"fault": "link-down", "link": ["a", "core"], "for": "1s"}
PAUSE = {"fault": "pause", "node": "a", "for": "2s"}


def planned(entries: list[dict[str, Any]], seed: int = 0) -> list[Planned]:
    made, problems = parse(entries)
    assert problems == []
    return schedule(made, seed)


def test_order_of_time() -> None:
    """Whatever the order in the file; what waits for an event stands last."""
    made = planned(
        [
            {"at": "+9s", **CUT},
            {"when": {"event": "ready"}, **PAUSE},
            {"at": "+1s", **PAUSE, "every": "10s", "times": 3},
        ]
    )
    assert [(one.fault, one.at_us // 10**6) for one in made] == [
        ("pause", 1),
        ("link-down", 9),
        ("pause", 11),
        ("pause", 21),
        ("pause", 0),
    ]
    assert made[-1].when is not None
    assert made[0].settings == {"node": "a"}
    assert made[0].hold_us == 2 * 10**6


def drawing(**how: Any) -> list[dict[str, Any]]:
    return [{"at": "+5s", "random": {"faults": [CUT, PAUSE], "until": "+60s", **how}}]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**63 - 1), st.integers(200, 5000), st.integers(0, 5000))
def test_drawn_faults(seed: int, shortest: int, more: int) -> None:
    """Reproducible, inside their time, with gaps as asked for, and none begins while it holds."""
    entries = drawing(min=f"{shortest}ms", max=f"{shortest + more}ms")
    made = planned(entries, seed)
    assert made == planned(entries, seed)
    assert all(5 * 10**6 < one.at_us < 60 * 10**6 for one in made)
    assert all(one.drawn for one in made)
    gaps = [later.at_us - one.at_us for one, later in pairwise(made)]
    assert all(gap >= shortest * 1000 for gap in gaps)
    for kind in ("pause", "link-down"):
        turns = [one for one in made if one.fault == kind]
        for one, later in pairwise(turns):
            assert one.hold_us is not None
            assert later.at_us >= one.at_us + one.hold_us


def test_seeds_differ() -> None:
    """Another seed, another schedule; and two drawings in one timeline are not the same."""
    entries = drawing(min="1s", max="5s")
    assert planned(entries, 1) != planned(entries, 2)
    twice = planned(entries * 2, 1)
    assert len({one.at_us for one in twice}) > len(planned(entries, 1))


def test_rate() -> None:
    """The mean number is about the rate's."""
    fault = {"fault": "restart", "node": "a"}
    made = planned([{"random": {"faults": [fault], "rate": "2/s", "until": "+1000s"}}], 1)
    assert len(made) == pytest.approx(2000, rel=0.1)


SETTINGS = st.one_of(
    st.fixed_dictionaries({"fault": st.just("link-down"), "link": st.just(["a", "core"])}),
    st.fixed_dictionaries(
        {"fault": st.just("clock-skew"), "node": st.just("a"), "skew": st.sampled_from(["+1h", "-90s"])}
    ),
    st.fixed_dictionaries(
        {
            "fault": st.just("blackhole"),
            "nodes": st.just(["a", "b"]),
            "target": st.sampled_from(["b", "fd00::/64", "10.9.0.1"]),
        }
    ),
    st.fixed_dictionaries(
        {"fault": st.just("degrade"), "link": st.just(["a", "core"]), "loss_burst": st.just(2.5), "loss": st.just("1%")}
    ),
)
TIMES = st.integers(0, 10**9)
ENTRIES = st.lists(st.tuples(SETTINGS, TIMES, st.none() | st.integers(1, 10**8), st.booleans()), max_size=6)


@settings(deadline=None, max_examples=30)
@given(ENTRIES)
def test_text_reproduces_the_schedule(chosen: list[tuple[dict[str, Any], int, int | None, bool]]) -> None:
    """The text is YAML of the language, and comes to the same schedule under any seed."""
    entries = []
    for fault, at, hold, waits in chosen:
        entry = {"at": f"+{at}us", **fault}
        if hold is not None:
            entry["for"] = f"{hold}us"
        if waits:
            entry["when"] = {"event": "ready", "node": "a"}
        entries.append(entry)
    made = planned(entries)
    _, plan = load_text(HEAD + timeline_text(made))
    again = planned(plan.sections["timeline"]["entries"], 7)
    assert again == [replace(one, drawn=False) for one in made]


def test_timing_keys() -> None:
    """No fault has a setting that a timeline would take for its own."""
    assert {"random", "for"} | (set(FaultEntry.model_fields) - {"hold"}) == TIMING
    for fault in known_faults().values():
        assert fault.combines or not TIMING & set(fault.model_fields)


def test_schema_knows_every_fault() -> None:
    """And its settings."""
    schema = TimelineSpec.model_json_schema()
    choices = schema["items"]["anyOf"]
    kinds = {choice["properties"]["fault"]["const"] for choice in choices if "fault" in choice["properties"]}
    assert kinds == {kind for kind, fault in known_faults().items() if not fault.combines}
    cut = next(one for one in choices if one["properties"].get("fault", {}).get("const") == "link-down")
    assert {"link", "for", "at", "when", "every", "times"} < set(cut["properties"])
    assert cut["required"] == ["fault", "link"]
