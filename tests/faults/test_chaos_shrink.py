"""The pure part of chaos: what is drawn fits and keeps its bounds; what is shrunk still fails, and is minimal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import TestbedError
from testbed.faults.base import known_faults
from testbed.faults.chaos.draw import SHORTEST_US, draw
from testbed.faults.chaos.hunt import read_timeline
from testbed.faults.chaos.shrink import Exhausted, Trials, closed_up, ddmin, shrink
from testbed.faults.timeline import Planned, misfits, parse, schedule, timeline_text
from testbed.plan.load import load_text, load_topology
from testbed.plan.types import Plan

_, CHAOS = load_topology(Path(__file__).parents[2] / "topologies" / "chaos.yaml")
EVERYTHING = """\
name: t
defaults: {runtime: container}
nodes:
  web: {services: {http: {command: [python3, -m, http.server, "8080"]}}}
  b: {services: {nap: {command: [sleep, "9"]}}}
links: [[web, core], [b, core]]
"""
BARE = "name: t\nnodes: {a: , b: }\nlinks: [[a, b]]\n"


@pytest.mark.parametrize("plan", [CHAOS, load_text(EVERYTHING)[1], load_text(BARE)[1]], ids=["chaos", "all", "bare"])
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**63 - 1), st.floats(0.2, 60), st.integers(1, 6))
def test_drawn_schedules(plan: Plan, seed: int, seconds: float, most: int) -> None:
    """The same for the same seed, sound for the plan, over in time, and never more at once than allowed."""
    planned = draw(plan, seed, seconds=seconds, most=most)
    assert planned == draw(plan, seed, seconds=seconds, most=most)
    written = [{"at": f"+{one.at_us}us", "fault": one.fault, **one.settings} for one in planned]
    assert parse(written)[1] == []
    assert list(misfits(written, plan)) == []
    ends = [one.at_us + (one.hold_us or 0) for one in planned]
    assert all(end <= seconds * 1e6 + 1 for end in ends)
    for one in planned:
        assert sum(other.at_us <= one.at_us < end for other, end in zip(planned, ends, strict=True)) <= most
        assert known_faults()[one.fault].momentary or (one.hold_us or 0) >= SHORTEST_US


def test_every_fault_is_drawn() -> None:
    """Where the topology has what it needs; a new one is too, or this says that the menu must be told of it."""
    _, plan = load_text(EVERYTHING)
    seen = Counter(one.fault for seed in range(10) for one in draw(plan, seed, seconds=60, most=5))
    assert set(seen) == {kind for kind, fault in known_faults().items() if not fault.combines}


def test_wanted_kinds() -> None:
    """Only these; one that the topology has no place for is an error that says why."""
    assert {one.fault for one in draw(CHAOS, 1, seconds=60, kinds=["pause", "kill"])} == {"pause", "kill"}
    with pytest.raises(TestbedError, match="disk-full does not fit the topology: it has no container"):
        draw(CHAOS, 1, seconds=60, kinds=["disk-full"])
    with pytest.raises(TestbedError, match="did you mean 'pause'"):
        draw(CHAOS, 1, seconds=60, kinds=["paus"])
    with pytest.raises(TestbedError, match="is no chaos"):
        draw(CHAOS, 1, seconds=0.1)


def test_schedule_is_read_again(tmp_path: Path) -> None:
    """What is printed comes to the same."""
    planned = draw(CHAOS, 3, seconds=60)
    (tmp_path / "timeline.yaml").write_text(timeline_text(planned))
    assert read_timeline(tmp_path / "timeline.yaml") == planned
    (tmp_path / "empty.yaml").write_text("name: t\n")
    with pytest.raises(TestbedError, match=r"empty.yaml is no timeline: it has no entry"):
        read_timeline(tmp_path / "empty.yaml")


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.data())
def test_ddmin_is_minimal(size: int, data: st.DataObject) -> None:
    """The parts that are needed together are found, whichever they are, in order and without anything else."""
    needed = data.draw(st.sets(st.integers(0, size - 1), max_size=5))
    items = list(range(size))
    assert ddmin(items, lambda part: needed <= set(part)) == sorted(needed)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.integers(0, 15), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 30))
def test_ddmin_with_several_causes_and_few_trials(causes: list[set[int]], most: int) -> None:
    """It ends with something that fails; with enough trials, not without any one of its parts."""

    def fails(part: Sequence[int]) -> bool:
        return any(cause <= set(part) for cause in causes)

    found = ddmin(range(16), fails)
    assert fails(found)
    assert not any(fails(found[:place] + found[place + 1 :]) for place in range(len(found)))
    left = iter(range(most))

    def bounded(part: Sequence[int]) -> bool:
        if next(left, None) is None:
            raise Exhausted
        return fails(part)

    assert fails(ddmin(range(16), bounded))


SCHEDULE = [Planned(second * 10**6, f"kind-{second}", {}, (second + 1) * 10**6) for second in range(8)]


@settings(deadline=None, max_examples=50)
@given(st.sets(st.integers(0, 7), min_size=1, max_size=3), st.integers(1, 10), st.integers(0, 60))
def test_shrunk_schedules(needed: set[int], tenths: int, most: int) -> None:
    """Few faults that begin at once and hold no longer than they must. However few the trials, what comes out fails."""
    names = {f"kind-{number}" for number in needed}
    least = tenths * SHORTEST_US

    def fails(part: Sequence[Planned]) -> bool:
        return names <= {one.fault for one in part if one.hold_us is not None and one.hold_us >= least}

    assert fails(shrink(SCHEDULE, Trials(fails, most, 1e9)))
    trials = Trials(fails, 10_000, 1e9)
    small = shrink(SCHEDULE, trials)
    assert [one.fault for one in small] == sorted(names)
    assert [one.at_us for one in small] == [0] * len(small)
    assert [one.hold_us for one in small] == [least] * len(small)
    before = trials.number
    assert trials(small)
    assert trials.number == before, "no schedule is tried twice"


def test_gaps_that_matter_are_kept() -> None:
    """The second one must begin while the first holds, but a second after it."""

    def fails(part: Sequence[Planned]) -> bool:
        times = {one.fault: one for one in part}
        if not {"kind-3", "kind-5"} <= set(times):
            return False
        first, second = times["kind-3"], times["kind-5"]
        assert first.hold_us is not None
        return first.at_us + 10**6 <= second.at_us < first.at_us + first.hold_us

    small = shrink(SCHEDULE, Trials(fails, 10_000, 1e9))
    assert [(one.fault, one.at_us) for one in small] == [("kind-3", 0), ("kind-5", 10**6)]


def test_what_fails_alone() -> None:
    """Without any fault: then nothing is left."""
    assert shrink(SCHEDULE, lambda _: True) == []


def test_no_trial_after_the_time() -> None:
    """Time counts from the beginning; a trial that has begun is not broken off."""
    clock = iter([0.0, 5.0, 11.0])
    trials = Trials(lambda _: True, 100, 10, lambda: next(clock))
    assert trials(SCHEDULE)
    with pytest.raises(Exhausted):
        trials(SCHEDULE[:1])


def test_closed_up() -> None:
    """Distances stay."""
    late = [replace(one, at_us=one.at_us + 7) for one in SCHEDULE]
    assert closed_up(late) == SCHEDULE
    assert closed_up([]) == []
    assert schedule([], 0) == []
