"""The schedule, the published experiments to the digit, and what follows from them about what the paper leaves open."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import CentralController, NoRotation, Policy, RandomChoice, RoundRobin
from testbed.pool.report.published import (
    DETECTION,
    DETECTION_PERIOD,
    EXPERIMENT_1,
    EXPERIMENT_2,
    HORIZON,
    MIGRATION_COST,
    OUTPUT,
    SERVERS,
    TIMER,
    Experiment,
)
from testbed.pool.schedule.scheduler import NEVER, Due, Schedule
from testbed.pool.schedule.sequences import FOREVER, Combined, Given, Live
from testbed.pool.simulation.account import account, exposures
from testbed.pool.simulation.simulate import Migration, Trace, simulate

EXPERIMENTS = pytest.mark.parametrize("experiment", [EXPERIMENT_1, EXPERIMENT_2], ids=lambda e: e.name)


def run(experiment: Experiment, **keys: object) -> Trace:
    return simulate(SERVERS, experiment.schedule(), HORIZON, **keys)  # type: ignore[arg-type]


# What is published.


def test_experiment_1_migrates_at_exactly_the_published_times() -> None:
    seconds = "250 500 720 840 1080 1330 1440 1680 1920 2160 2280 2520 2640 2890 3000 3120 3240 3360 3480"
    assert [at / SECOND for at in run(EXPERIMENT_1).times] == [int(word) for word in seconds.split()]
    assert run(EXPERIMENT_1).times == EXPERIMENT_1.times
    assert len(EXPERIMENT_1.times) == EXPERIMENT_1.migrations == 19


def test_experiment_1_each_server_leaves_as_often_as_published() -> None:
    assert run(EXPERIMENT_1).leaves() == {"A": 7, "B": 6, "C": 6}


def test_experiment_2_output_sequence_is_exactly_the_published_one() -> None:
    sequence = EXPERIMENT_2.schedule().sequence
    assert sequence.text(HORIZON) == "010001111011111101100001010101010001110101010100110101111110" == OUTPUT


def test_experiment_2_migrates_35_times() -> None:
    trace = run(EXPERIMENT_2)
    assert len(trace.migrations) == EXPERIMENT_2.migrations == 35
    assert sum(m.cause == "timer" for m in trace.migrations) == 1, "34 ones and one run of the timer"
    assert OUTPUT.count("1") == 34
    assert [m.left / SECOND for m in trace.migrations if m.cause == "timer"] == [1390]


@EXPERIMENTS
def test_printed_figures(experiment: Experiment) -> None:
    """With the published cost of all migrations together."""
    result = account(run(experiment), total_cost=experiment.cost)
    assert result.intervals == experiment.intervals == experiment.migrations + 1
    assert result.printed() == {
        "service": experiment.service,
        "efficiency": experiment.efficiency,
        "exposure": experiment.exposure,
    }


def test_the_printed_figures_are_these() -> None:
    assert (EXPERIMENT_1.service, EXPERIMENT_1.efficiency, EXPERIMENT_1.exposure) == ("3458.1", "96.06", "172.9")
    assert (EXPERIMENT_2.service, EXPERIMENT_2.efficiency, EXPERIMENT_2.exposure) == ("3347.1", "92.98", "93.0")


@EXPERIMENTS
def test_the_same_cost_for_each_migration_gives_the_same_figures(experiment: Experiment) -> None:
    each = account(run(experiment), cost=round(experiment.cost / experiment.migrations))
    assert each.printed() == account(run(experiment), total_cost=experiment.cost).printed()


# What is left open, and which readings the published numbers allow.


def test_the_output_is_or_and_not_xor() -> None:
    xor = EXPERIMENT_2.schedule("xor")
    assert xor.sequence.text(HORIZON) != OUTPUT
    assert len(simulate(SERVERS, xor, HORIZON).migrations) == 28


@EXPERIMENTS
def test_no_bit_falls_on_the_timer_or_the_end(experiment: Experiment) -> None:
    """So the published numbers do not say what that would be: here one migration, and none at the end."""
    trace = run(experiment)
    for earlier, later in pairwise((0, *trace.times)):
        assert not (later - earlier == TIMER and experiment.schedule().sequence.causes(later))
    assert not experiment.schedule().sequence.causes(HORIZON)
    assert HORIZON - trace.times[-1] < TIMER


def test_a_timer_that_a_migration_does_not_restart_gives_other_times() -> None:
    ones = set(EXPERIMENT_1.schedule().sequence.ones(0, HORIZON - 1).tolist())
    assert len(ones | set(range(TIMER, HORIZON, TIMER))) != EXPERIMENT_1.migrations


@pytest.mark.parametrize(("reinitialise", "exact"), [(0, True), (120, True), (121, False)])
def test_experiment_2_needs_servers_that_are_ready_within_two_minutes(reinitialise: int, exact: bool) -> None:
    trace = run(EXPERIMENT_2, reinitialise=reinitialise * SECOND)
    assert (trace.suspended() == 0) == exact
    assert (trace.times == run(EXPERIMENT_2).times) == exact


@pytest.mark.parametrize(("reinitialise", "exact"), [(230, True), (231, False)])
def test_experiment_1_needs_servers_that_are_ready_within_230_s(reinitialise: int, exact: bool) -> None:
    assert (run(EXPERIMENT_1, reinitialise=reinitialise * SECOND).times == EXPERIMENT_1.times) == exact


def test_bits_of_the_detection_sequence_are_not_the_attacks_that_are_scored() -> None:
    """If the bit that ends a period counted against the server that leaves, A, B, C would leave 6, 6, 7 times."""
    detection = Given(map(int, DETECTION), DETECTION_PERIOD)
    counted = run(EXPERIMENT_1, attacks=lambda _, start, end: len(detection.ones(start, end)))
    assert counted.leaves() == {"A": 6, "B": 6, "C": 7}
    before = run(EXPERIMENT_1, attacks=lambda _, start, end: len(detection.ones(start, end - 1)))
    assert before.leaves() == {"A": 7, "B": 6, "C": 6}, "no server is attacked before the bit that moves the service"


# The schedule by itself.


def test_bit_and_timer_at_the_same_time_are_one_migration() -> None:
    schedule = Schedule(Combined({"bits": Given([1, 0, 1], 100)}), 100)
    assert schedule.next(0) == Due(100, "bit")
    assert schedule.next(100) == Due(200, "timer")
    assert schedule.next(200) == Due(300, "bit")
    assert schedule.next(300) == Due(400, "timer"), "after the last bit there is only the timer"


def test_without_timer_and_sequence_nothing_is_due() -> None:
    assert Schedule().next(0) == NEVER
    assert Schedule(Combined({"bits": Given([1, 0], 100)})).next(100) == NEVER
    assert Schedule(None, 70).next(140) == Due(210, "timer")
    with pytest.raises(ValueError, match="the timer is nothing"):
        Schedule(None, 0)


def plain(bits: list[int], period: int, timer: int | None, last: int) -> Due:
    """The next migration by looking at every instant."""
    for at in range(last + 1, 3000):
        if at % period == 0 and 0 < at // period <= len(bits) and bits[at // period - 1]:
            return Due(at, "bit")
        if timer and at == last + timer:
            return Due(at, "timer")
    return NEVER


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=40),
    st.integers(1, 20),
    st.none() | st.integers(1, 60),
    st.lists(st.integers(0, 900), min_size=1, max_size=8),
)
def test_next_is_right_in_whatever_order_it_is_asked(
    bits: list[int], period: int, timer: int | None, asked: list[int]
) -> None:
    schedule = Schedule(Combined({"bits": Given(bits, period)}), timer)
    for last in asked:
        assert schedule.next(last) == plain(bits, period, timer, last)


def test_live_bits_make_the_schedule_look_again() -> None:
    live = Live(120)
    schedule = Schedule(Combined({"live": live, "bits": Given([0, 0, 1], 60)}), 250)
    assert schedule.next(0, now=0) == Due(120, "look")
    live.detected(100)
    assert schedule.next(0, now=110) == Due(120, "look"), "the bit is not known before its time"
    assert schedule.next(0, now=120) == Due(120, "bit")
    assert schedule.next(120, now=120) == Due(180, "bit")
    assert schedule.next(180, now=180) == Due(240, "look")
    assert schedule.next(180, now=240) == Due(360, "look")
    assert schedule.next(180, now=360) == Due(430, "timer")
    assert schedule.next(180, now=1000) == Due(430, "timer"), "overdue"


# The pool in virtual time.


def test_a_pool_that_nobody_is_ready_in_goes_on_serving() -> None:
    trace = simulate("ab", Schedule(None, 10), 100, reinitialise=25)
    assert [(m.due, m.left, m.source) for m in trace.migrations] == [
        (10, 10, "a"),
        (20, 35, "b"),
        (45, 60, "a"),
        (70, 85, "b"),
        (95, 110, "a"),
    ][:4]
    assert trace.suspended() == 45


def test_the_suspended_states_timer_bounds_it_and_then_nobody_serves() -> None:
    trace = simulate("ab", Schedule(None, 10), 100, reinitialise=25, suspended_limit=5)
    assert trace.migrations[:2] == (
        Migration(10, 10, 10, "timer", "a", "b"),
        Migration(20, 25, 35, "timer", "b", "a"),
    )
    assert exposures(trace.migrations[:2], 40, cost=2) == [10, 13, 3]
    assert account(Trace(("a", "b"), 40, trace.migrations[:2]), cost=2).lost == 40 - 26


def test_exposure_is_never_negative() -> None:
    trace = simulate("abc", Schedule(None, 10), 35)
    assert exposures(trace.migrations, 35, cost=12) == [10, 0, 0, 0]


@given(
    st.integers(2, 6),
    st.lists(st.integers(0, 1), min_size=1, max_size=80),
    st.integers(1, 30),
    st.integers(1, 60),
    st.integers(0, 200),
    st.none() | st.integers(1, 60),
    st.sampled_from(["competition", "round robin", "random", "central"]),
)
def test_what_holds_for_every_pool(
    count: int, bits: list[int], period: int, timer: int, reinitialise: int, limit: int | None, kind: str
) -> None:
    names = [f"s{number}" for number in range(count)]
    policies: dict[str, Policy | None] = {
        "competition": None,
        "round robin": RoundRobin(names),
        "random": RandomChoice(1),
        "central": CentralController(),
    }
    trace = simulate(
        names,
        Schedule(Combined({"bits": Given(bits, period)}), timer),
        1000,
        policy=policies[kind],
        reinitialise=reinitialise,
        suspended_limit=limit,
    )
    serving, taken, free_from = names[0] if kind != "random" else None, 0, dict.fromkeys(names, 0)
    for migration in trace.migrations:
        assert serving in (None, migration.source)
        assert migration.source != migration.target
        assert taken < migration.due <= migration.left <= migration.taken
        assert limit is None or migration.left - migration.due <= limit
        assert migration.due - taken <= timer
        assert free_from[migration.target] <= migration.taken, "it was not ready"
        others = [free_from[name] for name in names if name != migration.source]
        assert migration.taken == max(migration.due, min(others)), "somebody was ready earlier"
        free_from[migration.source] = migration.left + reinitialise
        serving, taken = migration.target, migration.taken


def test_round_robin_is_what_the_competition_comes_to_without_attacks() -> None:
    competition, robin = run(EXPERIMENT_2), run(EXPERIMENT_2, policy=RoundRobin(SERVERS))
    assert competition.migrations == robin.migrations


def test_no_rotation() -> None:
    trace = run(EXPERIMENT_2, policy=NoRotation())
    assert trace.migrations == ()
    assert account(trace, cost=MIGRATION_COST).exposure == HORIZON


def test_a_pool_of_one() -> None:
    for servers in ("a", "", "aa"):
        with pytest.raises(ValueError, match="one alone has nobody to hand over to"):
            simulate(servers, Schedule(None, 10), 100)


def test_nothing_due_ends_a_pool_without_horizon() -> None:
    assert simulate("ab", Schedule(), FOREVER).migrations == ()
