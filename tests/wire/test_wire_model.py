"""What happens to frames, with a virtual clock: bounds, order and statistics."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, kstest

from testbed.net.wire.model import ONE, Behaviour, Direction, Generator, behaviour, seeds
from testbed.net.wire.settings import Settings

MS = 1_000_000
SEEDS = seeds(1, "a:eth0--b:eth0", "forward")

any_settings = st.builds(
    Settings,
    delay_us=st.integers(0, 10**6),
    jitter_us=st.integers(0, 10**6),
    loss=st.sampled_from([0, 0.05, 0.4]),
    loss_burst=st.sampled_from([None, 1, 3.5]),
    duplicate=st.sampled_from([0, 0.1, 1]),
    corrupt=st.sampled_from([0, 0.1, 1]),
    reorder=st.booleans(),
)


def direction(seed: int = 1, **settings: object) -> Direction:
    """A direction with these settings."""
    return Direction(seeds(seed, "link", "forward"), behaviour(Settings(**settings)))  # type: ignore[arg-type]


def fates(it: Direction, count: int, length: int = 1000) -> list[int]:
    """How many copies arrive of each of ``count`` frames."""
    return [len(it.arrive(number * MS, length)) for number in range(count)]


def test_plain_delay_is_exact() -> None:
    """Every frame is due after the delay, once and whole."""
    it = direction(delay_us=25_000)
    assert [it.arrive(t, 100) for t in range(0, 10 * MS, MS)] == [((t + 25 * MS, -1),) for t in range(0, 10 * MS, MS)]


def test_generator_is_splitmix64() -> None:
    """The published first numbers for seed 1234567 (reference implementation by Vigna), cut to 53 bits."""
    generator = Generator(1234567)
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [generator.draw() for _ in wanted] == [number >> 11 for number in wanted]


@pytest.mark.parametrize("loss", [0.001, 0.05, 0.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_independent_loss(loss: float, seed: int) -> None:
    """The number of losses lies within the bounds that a binomial distribution keeps in all but 1 of 10^6 cases."""
    count = 50_000
    lost = fates(direction(seed, loss=loss), count).count(0)
    low, high = binom.interval(1 - 1e-6, count, loss)
    assert low <= lost <= high


def test_losses_are_independent() -> None:
    """A loss says nothing of the next frame."""
    fate = fates(direction(loss=0.2), 100_000)
    after = [second for first, second in itertools.pairwise(fate) if first == 0]
    low, high = binom.interval(1 - 1e-6, len(after), 0.2)
    assert low <= after.count(0) <= high


@pytest.mark.parametrize("burst", [1.0, 2.5, 10.0])
def test_bursts_of_losses(burst: float) -> None:
    """Bursts have the mean length, and losses the share, that were asked for; lengths are geometric."""
    fate = fates(direction(loss=0.05, loss_burst=burst), 400_000)
    lengths = [len(list(run)) for lost, run in itertools.groupby(fate, lambda copies: copies == 0) if lost]
    # a bad state may be entered again at once after one frame; what is lost between two that pass is one burst
    spread = 5 * statistics.pstdev(lengths) / len(lengths) ** 0.5
    assert statistics.mean(lengths) == pytest.approx(burst, abs=spread + 1e-9)
    assert fate.count(0) / len(fate) == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("loss_burst", [None, 3])
def test_total_loss(loss_burst: float | None) -> None:
    """A loss of 1 lets nothing pass."""
    assert set(fates(direction(loss=1.0, loss_burst=loss_burst), 1000)) == {0}


def test_duplicates() -> None:
    """A share of frames comes twice; with certainty, all of them."""
    count = 50_000
    twice = fates(direction(duplicate=0.1), count).count(2)
    low, high = binom.interval(1 - 1e-6, count, 0.1)
    assert low <= twice <= high
    assert set(fates(direction(duplicate=1.0), 100)) == {2}


def test_corruption_flips_one_bit_of_the_packet() -> None:
    """The share of damaged frames is right, each bit behind the Ethernet header is hit, and none in it."""
    it = direction(corrupt=0.5)
    bits = [it.arrive(n, 20)[0][1] for n in range(20_000)]
    low, high = binom.interval(1 - 1e-6, len(bits), 0.5)
    assert low <= sum(bit >= 0 for bit in bits) <= high
    assert {bit for bit in bits if bit >= 0} == set(range(8 * 14, 8 * 20))
    assert it.arrive(20_000, 14) == ((20_000, -1),), "a frame without a packet"


def test_jitter_is_uniform_within_its_bounds() -> None:
    """Delays of far apart frames are uniform in delay - jitter ... delay + jitter."""
    it = direction(delay_us=25_000, jitter_us=5_000)
    delays = [it.arrive(t, 100)[0][0] - t for t in range(0, 10_000 * 100 * MS, 100 * MS)]
    assert min(delays) >= 20 * MS
    assert max(delays) <= 30 * MS
    assert kstest(delays, "uniform", args=(20 * MS, 10 * MS)).pvalue > 1e-6


@pytest.mark.parametrize("reorder", [False, True])
def test_jitter_and_order(reorder: bool) -> None:
    """Order is kept unless reordering is allowed, and then it happens."""
    it = direction(delay_us=25_000, jitter_us=5_000, reorder=reorder)
    dues = [it.arrive(t, 100)[0][0] for t in range(0, 1000 * MS, MS)]
    assert (dues == sorted(dues)) is not reorder


def test_jitter_longer_than_the_delay() -> None:
    """No frame is due before it came."""
    it = direction(delay_us=1_000, jitter_us=5_000, reorder=True)
    assert min(it.arrive(t, 100)[0][0] - t for t in range(0, 1000 * MS, MS)) == 0


@given(
    settings=st.lists(any_settings, min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30 * MS), st.integers(0, 1514)), max_size=60),
)
def test_bounds_and_order_through_changes(settings: list[Settings], steps: list[tuple[int, int, int]]) -> None:
    """Whatever is set and changed: no frame is early, none waits longer than the longest delay unless for one before
    it, and frames that were sent while order was kept arrive in order."""
    it = Direction(SEEDS, behaviour(settings[0]))
    time, last = 0, 0
    for choice, wait, length in steps:
        time += wait
        it.change(behaviour(settings[choice % len(settings)]))
        now = it.now
        for due, bit in it.arrive(time, length):
            assert due >= max(time, time + now.delay_ns - now.jitter_ns)
            assert due <= max(time + now.delay_ns + now.jitter_ns, 0 if now.reorder else last)
            assert now.reorder or due >= last
            assert bit == -1 or 14 * 8 <= bit < length * 8
            last = max(last, due)


def test_change_to_shorter_delay_keeps_order() -> None:
    """From 80 to 20 ms: new frames wait for those before them, and no longer than needed."""
    it = direction(delay_us=80_000)
    it.arrive(0, 100)
    it.change(behaviour(Settings(delay_us=20_000)))
    assert it.arrive(10 * MS, 100) == ((80 * MS, -1),)
    assert it.arrive(70 * MS, 100) == ((90 * MS, -1),)


def test_change_to_longer_delay() -> None:
    """New frames get the new delay."""
    it = direction(delay_us=20_000)
    it.arrive(0, 100)
    it.change(behaviour(Settings(delay_us=80_000)))
    assert it.arrive(10 * MS, 100) == ((90 * MS, -1),)


def test_same_seed_same_fate() -> None:
    """Equal seeds give equal fates; another link, direction, seed or restart gives others."""
    wanted = behaviour(Settings(loss=0.5))
    starts = [
        seeds(1, "x", "forward"),
        seeds(1, "x", "forward"),
        seeds(2, "x", "forward"),
        seeds(1, "y", "forward"),
        seeds(1, "x", "backward"),
        seeds(1, "x", "forward", 1),
    ]
    first, same, *others = [tuple(fates(Direction(start, wanted), 200)) for start in starts]
    assert first == same
    assert len({first, *others}) == len(others) + 1


def test_properties_do_not_disturb_each_other() -> None:
    """Which frames are lost does not depend on whether delays vary or frames are doubled."""
    plain = fates(direction(loss=0.3), 1000)
    full = fates(direction(loss=0.3, jitter_us=500, duplicate=0.5, corrupt=0.5), 1000)
    assert [n == 0 for n in plain] == [n == 0 for n in full]


def test_single_frames_where_packets_have_fates_of_their_own() -> None:
    """Segments may stay joined only if nothing happens to them one by one."""
    assert not Behaviour(delay_ns=1, jitter_ns=1).single
    for one in ({"loss": ONE}, {"duplicate": 1}, {"corrupt": 1}, {"reorder": True}):
        assert Behaviour(**one).single  # type: ignore[arg-type]
