"""The allocator: prefixes stay in the pool, never overlap, and clashes name their owner."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.plan.addresses import Allocator, parse_address, parse_interface, parse_network, usable
from testbed.plan.types import Network

POOLS = st.sampled_from(
    [ip_network("10.0.0.0/24"), ip_network("10.0.0.0/8"), ip_network("fd00::/112"), ip_network("fd00::/48")]
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Network, list[int | Network]]:
    """A pool, and what is asked of it: prefix lengths to allocate and prefixes (in or near it) to reserve."""
    pool = draw(POOLS)
    longest, shortest = pool.max_prefixlen, pool.prefixlen
    lengths = st.integers(max(shortest, longest - 8), longest)

    def prefix(offset: int, length: int) -> Network:
        first = int(pool.network_address) + offset >> (longest - length) << (longest - length)
        return IPv4Network((first, length)) if pool.version == 4 else IPv6Network((first, length))

    fixed = st.builds(prefix, st.integers(0, 600), lengths)
    return pool, draw(st.lists(lengths | fixed, max_size=40))


@given(steps())
def test_prefixes_never_overlap_and_stay_in_the_pool(case: tuple[Network, list[int | Network]]) -> None:
    pool, asked = case
    allocator = Allocator(pool)
    taken: list[Network] = []
    for number, step in enumerate(asked):
        if isinstance(step, int):
            given_out = allocator.allocate(step, str(number))
            if given_out is None:
                continue
            assert given_out.prefixlen == step
            assert int(given_out.network_address) >= int(pool.network_address)
            assert int(given_out.broadcast_address) <= int(pool.broadcast_address)
            assert not any(given_out.overlaps(other) for other in taken)
            taken.append(given_out)
        else:
            clashing = [other for other in taken if step.overlaps(other)]
            other = allocator.reserve(step, str(number))
            assert (other is None) == (not clashing)
            if other is None:
                taken.append(step)
            else:
                assert other.network in clashing


@given(steps())
def test_a_free_prefix_that_is_offered_is_free(case: tuple[Network, list[int | Network]]) -> None:
    pool, asked = case
    allocator = Allocator(pool)
    for step in asked:
        if not isinstance(step, int) and allocator.reserve(step, "somebody") is not None:
            free = allocator.free_after(step)
            if free is not None:
                assert free.prefixlen == step.prefixlen
                assert allocator.reserve(free, "new") is None


def test_every_prefix_of_a_pool_is_given_out_in_order() -> None:
    allocator = Allocator(ip_network("10.0.0.0/28"))
    allocator.reserve(ip_network("10.0.0.4/30"), "fixed")
    assert [str(allocator.allocate(31)) for _ in range(7)] == [
        "10.0.0.0/31", "10.0.0.2/31", "10.0.0.8/31", "10.0.0.10/31", "10.0.0.12/31", "10.0.0.14/31", "None",
    ]  # fmt: skip
    assert allocator.allocate(24) is None


def test_gaps_left_by_alignment_are_used() -> None:
    allocator = Allocator(ip_network("10.0.0.0/24"))
    assert [str(allocator.allocate(length)) for length in (31, 28, 31)] == [
        "10.0.0.0/31",
        "10.0.0.16/28",
        "10.0.0.2/31",
    ]


def test_C5_a_clash_names_the_owner_across_families() -> None:
    allocator = Allocator(ip_network("10.0.0.0/8"))
    assert allocator.reserve(ip_network("fd00::/64"), "first", ("nodes", "a")) is None
    other = allocator.reserve(ip_network("fd00::/80"), "second")
    assert other is not None
    assert (other.owner, other.path) == ("first", ("nodes", "a"))
    assert str(allocator.free_after(ip_network("fd00::/80"))) == "fd00:0:0:1::/80"


@pytest.mark.parametrize(
    ("prefix", "first", "last"),
    [
        ("10.0.0.0/24", 1, 254),
        ("10.0.0.0/31", 0, 1),
        ("10.0.0.0/32", 0, 0),
        ("fd00::/64", 1, 2**64 - 1),
        ("fd00::/127", 0, 1),
    ],
)
def test_usable_addresses(prefix: str, first: int, last: int) -> None:
    assert usable(ip_network(prefix)) == (first, last)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/8", "10.0.0.0/33", "x", "", "224.0.0.0/4", "127.0.0.0/8", "fe80::/64", "0.0.0.0/0", "::/0"]
)
def test_prefixes_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="; "):
        parse_network(text)


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1", "10.0.0.0/24", "10.0.0.255/24", "fd00::/64", "::1/128", "fe80::1/64", "fd00::1%a/64", "10.0.0.1/x"],
)
def test_addresses_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="; "):
        parse_interface(text)


def test_addresses_that_are_taken() -> None:
    for text in (
        "10.0.0.0/31",
        "10.0.0.255/31",
        "10.0.0.1/24",
        "10.0.0.7/32",
        "fd00::/127",
        "fd00::5/64",
        "192.0.2.1/30",
    ):
        assert str(parse_interface(text)) == text
    with pytest.raises(ValueError, match="; "):
        parse_address("10.0.0.1/24")
