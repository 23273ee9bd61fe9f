"""Groups of instances in mixed descriptors, and their introduction points: even, and no relay twice."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.tor.balance.groups import choose_points, group, largest_group
from testbed.tor.distribute.document import MAX_POINTS, IntroPoint

HSDIRS = [f"d{number}" for number in range(1, 7)]
NAMES = [f"h{number}" for number in range(1, 61)]


def shares(groups: dict[str, tuple[str, ...]]) -> dict[str, Fraction]:
    """What part of the clients each instance gets: an HSDir by chance, then one of those in its group."""
    found: Counter[str] = Counter()
    for members in groups.values():
        for name in members:
            found[name] += Fraction(1, len(members) * len(groups))  # type: ignore[assignment]
    return dict(found)  # type: ignore[arg-type]


def point(relay: str, key: str) -> IntroPoint:
    """An introduction point at a relay."""
    return IntroPoint(relay, key.encode(), "")


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 24, 27, 30, 60])
def test_all_get_the_same(number: int) -> None:
    """Wherever that can be: sixty instances are ten in each descriptor, and in one each."""
    groups = group(HSDIRS, NAMES[:number])
    assert set(shares(groups).values()) == {Fraction(1, number)}
    assert max(map(len, groups.values())) <= 10
    if number == 60:
        assert all(len(members) == 10 for members in groups.values())
    if number >= 6 and number % 6 == 0:
        assert len(set(groups.values())) == 6, "six different groups"


def test_nearly_the_same_otherwise() -> None:
    """The most used gets at most a fifth more than the least used."""
    for number in range(1, 61):
        found = shares(group(HSDIRS, NAMES[:number]))
        assert set(found) == set(NAMES[:number])
        assert max(found.values()) <= Fraction(6, 5) * min(found.values()), number


def test_too_many() -> None:
    """What does not fit is refused."""
    with pytest.raises(ValueError, match="61 instances do not fit into 6 descriptors of at most 10"):
        group(HSDIRS, [*NAMES, "h61"])
    assert group(HSDIRS, []) == {}
    assert (largest_group(3), largest_group(2), largest_group(1)) == (10, 10, 20)


living = st.lists(st.sampled_from(NAMES[:30]), min_size=1, max_size=30, unique=True)
ring = st.lists(st.sampled_from([f"d{number}" for number in range(1, 9)]), min_size=3, max_size=8, unique=True)


@settings(deadline=None)
@given(living, living, ring, ring)
def test_groups_after_a_change(before: list[str], after: list[str], old: list[str], new: list[str]) -> None:
    """Sizes differ by one at most, everybody is in equally many, nobody twice in one; what is even stays."""
    first = group(old, before)
    second = group(new, after, first)
    assert list(second) == new
    sizes = [len(members) for members in second.values()]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert max(sizes) <= 10
    counts = Counter(name for members in second.values() for name in members)
    assert set(counts) == set(after)
    assert len(set(counts.values())) == 1
    assert all(len(set(members)) == len(members) for members in second.values())
    assert group(new, after, second) == second


def test_a_death_leaves_the_other_groups_alone() -> None:
    """Of sixty one dies: its group is nine, the rest is as it was."""
    before = group(HSDIRS, NAMES)
    after = group(HSDIRS, [name for name in NAMES if name != "h8"], before)
    assert {hsdir: tuple(n for n in members if n != "h8") for hsdir, members in before.items()} == after
    assert group(HSDIRS, NAMES, after) == before


def test_no_relay_twice() -> None:
    """Of two points at one relay clients would only ever use the first."""
    offered = {
        "h1": [point("R1", "a"), point("R2", "b"), point("R3", "c")],
        "h2": [point("R1", "d"), point("R2", "e"), point("R4", "f")],
    }
    chosen = choose_points(offered)
    relays = [item.relay for points in chosen.values() for item in points]
    assert len(relays) == len(set(relays)) == 4
    assert {name: len(points) for name, points in chosen.items()} == {"h1": 2, "h2": 2}


def test_a_relay_is_given_up_for_another() -> None:
    """h1 takes R2, so that h2, which has no other, can have R1."""
    chosen = choose_points({"h1": [point("R1", "a"), point("R2", "b")], "h2": [point("R1", "c")]}, wanted=1)
    assert {name: [item.relay for item in points] for name, points in chosen.items()} == {"h1": ["R2"], "h2": ["R1"]}


def test_not_one_more_for_some() -> None:
    """Where not everybody can have a second point nobody gets one: shares are by points."""
    chosen = choose_points({"h1": [point("R1", "a"), point("R2", "b")], "h2": [point("R1", "c")]})
    assert {name: len(points) for name, points in chosen.items()} == {"h1": 1, "h2": 1}
    lacking = choose_points({"h1": [point("R1", "a")], "h2": [point("R1", "b")]})
    assert sorted(len(points) for points in lacking.values()) == [0, 1]


offers = st.dictionaries(
    st.sampled_from(NAMES[:10]),
    st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
    min_size=1,
    max_size=10,
)


@given(offers)
def test_points_are_even_and_within_bounds(offer: dict[str, list[int]]) -> None:
    """Distinct relays, at most twenty, equally many of each; each chosen point is one that was offered."""
    offered = {name: [point(f"R{relay}", f"{name}-{relay}") for relay in relays] for name, relays in offer.items()}
    chosen = choose_points(offered)
    points = [item for found in chosen.values() for item in found]
    assert len({item.relay for item in points}) == len(points) <= MAX_POINTS
    assert all(item in offered[name] for name, found in chosen.items() for item in found)
    counts = {len(found) for found in chosen.values()}
    assert len(counts) == 1 or counts == {0, 1}, "unequal only where relays do not suffice"
