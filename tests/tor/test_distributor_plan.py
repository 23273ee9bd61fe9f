"""Which instance goes on which HSDir: even, fair over time, and no change that is not needed."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.tor.distribute.compose import COMPOSERS
from testbed.tor.distribute.document import Content
from testbed.tor.distribute.placing import plan_returns
from testbed.tor.distribute.plan import changes, place

HSDIRS = [f"d{number}" for number in range(1, 7)]
NAMES = [f"h{number}" for number in range(1, 10)]

places = st.lists(st.sampled_from([f"d{number}" for number in range(1, 13)]), min_size=1, max_size=12, unique=True)
instances = st.lists(st.sampled_from(NAMES), min_size=1, max_size=9, unique=True)


def test_three_instances_follow_each_other_round_the_ring() -> None:
    """Each has two HSDirs, one in each replica (the first three are those of the first replica)."""
    assert list(place(HSDIRS, NAMES[:3]).values()) == ["h1", "h2", "h3", "h1", "h2", "h3"]
    assert list(place(HSDIRS, NAMES[:2]).values()) == ["h1", "h2"] * 3
    assert list(place(HSDIRS, NAMES[:6]).values()) == NAMES[:6]
    assert place(HSDIRS, []) == {}
    assert place([], NAMES) == {}


def test_only_what_a_death_orphans_is_moved() -> None:
    """The dead one's HSDirs go to the others; when it returns it gets as many as the others, and no more is moved."""
    before = place(HSDIRS, NAMES[:3])
    after = place(HSDIRS, ["h2", "h3"], before)
    assert changes(before, after) == ["d1", "d4"]
    assert Counter(after.values()) == {"h2": 3, "h3": 3}
    again = place(HSDIRS, NAMES[:3], after)
    assert Counter(again.values()) == {"h1": 2, "h2": 2, "h3": 2}
    assert len(changes(after, again)) == 2


def test_an_hsdir_leaves_and_joins() -> None:
    """The others keep what they have."""
    before = place(HSDIRS, NAMES[:3])
    after = place(HSDIRS[1:], NAMES[:3], before)
    assert changes(before, after) == []
    assert changes(after, place([*HSDIRS[1:], "d9"], NAMES[:3], after)) == ["d9"]


@given(places, instances, instances, places)
def test_even_and_least_changes(hsdirs: list[str], before: list[str], after: list[str], old: list[str]) -> None:
    """Counts differ by one at most, every HSDir is served, and no even placement keeps more of the previous one."""
    previous = place(old, before)
    placed = place(hsdirs, after, previous)
    assert list(placed) == hsdirs
    counts = Counter(placed.values())
    numbers = [counts[name] for name in after]
    assert max(numbers) - min(numbers) <= 1
    kept = sum(previous.get(hsdir) == name for hsdir, name in placed.items())
    share, extra = divmod(len(hsdirs), len(after))
    had = sorted((sum(previous.get(h) == name for h in hsdirs) for name in after), reverse=True)
    most = sum(min(number, share + (rank < extra)) for rank, number in enumerate(had))
    assert kept == most
    assert place(hsdirs, after, placed) == placed, "what is even already stays as it is"


def test_least_changes_against_all_placements() -> None:
    """The bound that the test above uses is the truth, by trying all."""
    previous = {"d1": "h1", "d2": "h1", "d3": "h1", "d4": "h4", "d5": "h2"}
    for names in (["h1", "h2"], ["h1", "h2", "h3"], ["h2", "h3", "h4", "h5"]):
        placed = place(list(previous), names, previous)
        best = min(
            len(changes(previous, dict(zip(previous, chosen, strict=True))))
            for chosen in product(names, repeat=5)
            if max(Counter(chosen)[n] for n in names) - min(Counter(chosen)[n] for n in names) <= 1
        )
        assert len(changes(previous, placed)) == best, names


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 60))
def test_rotation_favours_nobody_over_time(number: int, many: int, turns: int) -> None:
    """Where it does not come out even, after each turn nobody has had more than one HSDir-turn more than another."""
    hsdirs, names = [f"d{place}" for place in range(number)], NAMES[:many]
    held = dict.fromkeys(names, 0.0)
    placed: dict[str, str] = {}
    for _ in range(turns):
        placed = place(hsdirs, names, placed, held, rotate=True)
        for name in placed.values():
            held[name] += 1
        assert max(held.values()) - min(held.values()) <= 1


@pytest.mark.parametrize(("many", "moved"), [(3, 0), (4, 2), (5, 1)])
def test_rotation_moves_no_more_than_it_must(many: int, moved: int) -> None:
    """Four on six: the two with one HSDir get a second each, from those that had two."""
    before = place(HSDIRS, NAMES[:many])
    held = {name: float(count) for name, count in Counter(before.values()).items()}
    after = place(HSDIRS, NAMES[:many], before, held, rotate=True)
    assert len(changes(before, after)) == moved


@given(st.integers(1, 6), st.sets(st.sampled_from(HSDIRS), min_size=1))
def test_it_comes_out_even_if_all_hsdirs_come_back_at_once(many: int, there: set[str]) -> None:
    """What those that are gone would get goes together, and those that are there keep what they have."""
    live = dict.fromkeys(NAMES[:many], Content((), (), 0, b"", b""))
    composer = COMPOSERS["distributor"]
    available = [hsdir for hsdir in HSDIRS if hsdir in there]
    plan = composer.plan(available, live, {}, {}, rotate=False)
    full = plan_returns(composer, HSDIRS, live, plan, {})
    assert {hsdir: full[hsdir] for hsdir in available} == plan
    numbers = [Counter(names for (names,) in full.values())[name] for name in live]
    if many <= len(available):
        assert max(numbers) - min(numbers) <= 1
    assert composer.plan(HSDIRS, live, full, {}, rotate=False) == full or many > len(available)
