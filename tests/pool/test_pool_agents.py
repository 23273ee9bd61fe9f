"""Agents in virtual time: the published experiments through the whole protocol, and one fault at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.pool.agents.agent import Agent
from testbed.pool.agents.clock import SECOND, VirtualClock
from testbed.pool.agents.competition import CentralController, Competition, NoRotation, Policy, RandomChoice, RoundRobin
from testbed.pool.agents.machine import State
from testbed.pool.agents.store import MemoryStore
from testbed.pool.agents.timing import Timing
from testbed.pool.agents.transport import Message
from testbed.pool.report.published import EXPERIMENT_1, EXPERIMENT_2, HORIZON, SERVERS, Experiment
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, Live
from testbed.pool.simulation.simulate import simulate
from testbed.pool.simulation.virtual import CONTROLLER, Turn, VirtualPool

TIMER = 20 * SECOND


def pool_of(
    names: str = "abc",
    *,
    timer: int | None = TIMER,
    policy: Policy | None = None,
    reinitialise: int = 5,
    **timing: object,
) -> VirtualPool:
    """All servers are ready at 0, and ``a`` serves. Times in seconds, but for those of ``timing``."""
    pool = VirtualPool(names, lambda: Schedule(None, timer), policy=policy, timing=Timing(**timing))  # type: ignore[arg-type]
    pool.run(0)
    pool.reinitialise = reinitialise * SECOND
    assert pool.serving() == ["a"]
    return pool


def states(pool: VirtualPool) -> dict[str, State]:
    return {name: agent.machine.state for name, agent in pool.agents.items()}


def starts(pool: VirtualPool) -> list[tuple[str, float]]:
    return [(turn.server, turn.start / SECOND) for turn in pool.turns]


@pytest.mark.parametrize("experiment", [EXPERIMENT_1, EXPERIMENT_2], ids=lambda e: e.name)
@pytest.mark.parametrize("kind", ["competition", "round robin", "random", "central"])
def test_agents_do_what_the_simulation_says(experiment: Experiment, kind: str) -> None:
    """Over a perfect network: at the same times, to the same servers."""
    policies: dict[str, Policy] = {
        "competition": Competition(),
        "round robin": RoundRobin(SERVERS),
        "random": RandomChoice(4),
        "central": CentralController(),
    }
    pool = VirtualPool(SERVERS, experiment.schedule, policy=policies[kind])
    pool.run(0)
    pool.reinitialise = 20 * SECOND
    pool.run(HORIZON - 1)
    first, *turns = pool.turns
    assert first == Turn("A", 1, 0, turns[0].start)
    assert [turn.start for turn in turns] == [earlier.end for earlier in pool.turns[:-1]]
    policy = RandomChoice(4) if kind == "random" else policies[kind]
    expected = simulate(SERVERS, experiment.schedule(), HORIZON, policy=policy, reinitialise=20 * SECOND)
    assert [turn.start for turn in turns] == list(expected.times)
    if kind != "random":  # there the first server is drawn too, and here only A is ready when it takes the service
        assert [turn.server for turn in turns] == [migration.target for migration in expected.migrations]


def test_the_whole_cycle_of_states() -> None:
    pool = pool_of()
    assert states(pool) == {"a": State.SERVICE, "b": State.READY, "c": State.READY}
    pool.run(TIMER)
    assert states(pool) == {"a": State.INITIALISING, "b": State.SERVICE, "c": State.READY}
    assert pool.record.holder == "b"
    assert {name: entry.state for name, entry in pool.record.servers.items()} == states(pool)
    pool.run(TIMER + 5 * SECOND)
    assert states(pool) == {"a": State.READY, "b": State.SERVICE, "c": State.READY}


def test_nobody_ready_suspends_and_the_first_that_is_ready_relieves() -> None:
    pool = pool_of("ab", reinitialise=30)
    pool.run(2 * TIMER)
    assert states(pool) == {"a": State.INITIALISING, "b": State.SUSPENDED}
    assert pool.serving() == ["b"]
    pool.run(TIMER + 30 * SECOND)
    assert states(pool) == {"a": State.SERVICE, "b": State.INITIALISING}
    assert starts(pool) == [("a", 0), ("b", 20), ("a", 50)], "at once: a says that it is ready"


def test_the_suspended_state_is_bounded() -> None:
    pool = pool_of("ab", reinitialise=30, suspended_limit=4_300_000)
    pool.run(2 * TIMER + 4_300_000)
    assert states(pool) == {"a": State.INITIALISING, "b": State.INITIALISING}
    assert pool.record.holder is None
    pool.run(TIMER + 30 * SECOND)
    assert starts(pool)[-1] == ("a", 50), "nobody serves until somebody is ready"


def test_a_server_that_dies_in_service_is_followed_when_its_lease_ends() -> None:
    pool = pool_of()
    pool.run(7 * SECOND)
    pool.kill("a")
    lease = pool.record.lease
    pool.run(lease - 1)
    assert pool.serving() == []
    pool.run(lease + SECOND)
    assert pool.serving() == ["b"]


def test_a_dead_winner_is_replaced_before_it_is_given_the_service() -> None:
    """The record names a winner that is gone, while the server in service does not hear of anything."""
    pool = pool_of(lease=20 * SECOND, alive=3 * SECOND)
    pool.run(TIMER - 1)
    pool.cut_off.add("a")
    pool.run(TIMER)
    assert pool.record.winner == "b"
    pool.kill("b")
    pool.run(TIMER + 5 * SECOND)
    assert (pool.record.winner, pool.serving()) == ("c", ["a"])
    pool.cut_off.clear()
    pool.run(TIMER + 7 * SECOND)
    assert pool.serving() == ["c"]


def test_a_dead_winner_that_was_given_the_service_loses_it_with_its_lease() -> None:
    pool = pool_of()
    pool.run(TIMER - 1)
    pool.cut_off.add("a")
    pool.run(TIMER)
    pool.kill("b")
    pool.cut_off.clear()
    pool.run(TIMER + SECOND)
    assert (pool.record.holder, pool.serving()) == ("b", [])
    pool.run(pool.record.lease + SECOND)
    assert pool.serving() == ["c"]


def test_a_server_that_dies_suspended() -> None:
    pool = pool_of("ab", reinitialise=30)
    pool.run(2 * TIMER + SECOND)
    assert states(pool)["b"] is State.SUSPENDED
    pool.kill("b")
    pool.run(TIMER + 30 * SECOND)
    assert pool.serving() == ["a"]


def test_a_server_that_dies_while_it_is_made_anew_and_comes_back() -> None:
    pool = pool_of()
    pool.run(TIMER)
    pool.kill("a")
    pool.run(2 * TIMER + SECOND)
    assert pool.serving() == ["c"], "the others go on without it"
    pool.start("a")
    pool.run(2 * TIMER + 10 * SECOND)
    assert states(pool)["a"] is State.READY


def test_a_server_whose_check_finds_something_never_becomes_ready() -> None:
    pool = pool_of()
    pool.tampered.add("a")
    pool.run(40 * TIMER)
    assert states(pool)["a"] is State.INITIALISING
    assert [server for server, _ in starts(pool)][1:9] == ["b", "c"] * 4


def test_broadcasts_that_are_lost_cost_a_poll_and_no_more() -> None:
    pool = pool_of(timer=TIMER + SECOND // 3)
    pool.faults.loss = 1
    pool.run(3 * TIMER)
    first, second = pool.turns[1:3]
    assert first.server == "b"
    assert 0 <= first.start - (TIMER + SECOND // 3) <= 2 * pool.timing.poll
    assert second.server == "c"
    assert 0 <= second.start - first.start - (TIMER + SECOND // 3) <= 3 * pool.timing.poll


def test_servers_that_polled_at_other_times_agree_on_the_winner() -> None:
    """Split votes cannot be: who computed the winner from an older record has its vote refused."""
    pool = pool_of("abcd")
    pool.faults.delay = 3 * SECOND
    pool.run(HORIZON // 4)
    epochs = [turn.epoch for turn in pool.turns]
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) > 30


def test_fewest_attacks_decide() -> None:
    pool = pool_of()
    pool.run(SECOND)
    pool.agents["a"].attacked()
    assert pool.record.attacks == 1
    pool.run(2 * TIMER)
    assert pool.record.servers["a"].attacks == 1
    assert starts(pool) == [("a", 0), ("b", 20), ("c", 40)]
    pool.run(3 * TIMER)
    assert starts(pool)[-1] == ("b", 60), "a has been ready for longer, and was attacked"


def test_a_detection_moves_the_service_at_the_next_bit() -> None:
    streams = [Live(7 * SECOND) for _ in "abc"]
    waiting = list(streams)
    pool = VirtualPool((), lambda: Schedule(Combined({"detection": waiting.pop(0)}), TIMER))
    for name, live in zip("abc", streams, strict=True):
        pool.start(name)
        pool.agents[name]._live = live
    pool.run(9 * SECOND)
    assert pool.serving() == ["a"]
    pool.agents["a"].attacked()
    pool.run(14 * SECOND - 1)
    assert pool.serving() == ["a"]
    pool.run(14 * SECOND)
    assert pool.serving() == ["b"]


def test_without_store_it_serves_on_suspended() -> None:
    pool = pool_of()
    pool.run(7 * SECOND)
    pool.stop_store()
    pool.run(5 * TIMER)
    assert pool.serving() == ["a"]
    assert states(pool)["a"] is State.SUSPENDED
    pool.start_store()
    pool.run(5 * TIMER + 2 * SECOND)
    assert pool.serving() in (["b"], ["c"]), "the migration that was due happens"


def test_without_store_the_suspended_limit_still_holds() -> None:
    pool = pool_of(suspended_limit=30 * SECOND)
    pool.stop_store()
    pool.run(60 * SECOND)
    assert pool.serving() == []


def test_without_store_it_may_be_told_to_stop() -> None:
    pool = pool_of(without_store="stop", lease=5_300_000)
    pool.run(7 * SECOND)
    pool.stop_store()
    lease = pool.record.lease
    pool.run(lease - 1)
    assert pool.serving() == ["a"]
    pool.run(lease)
    assert pool.serving() == []
    assert pool.turns[0].end == lease, "not at its next poll only"
    pool.start_store()
    pool.run(lease + 10 * SECOND)
    assert len(pool.serving()) == 1


def test_who_was_cut_off_and_served_on_gives_way_when_it_hears_of_the_other() -> None:
    """The price of ``without_store: serve``: two believe it for a while. The dispatcher follows the higher epoch."""
    pool = pool_of()
    pool.cut_off.add("a")
    pool.run(TIMER - SECOND)
    assert pool.serving() == ["a", "b"]
    assert [turn.epoch for turn in pool.turns] == [1, 2]
    pool.cut_off.clear()
    pool.run(TIMER)
    assert pool.serving() in (["b"], ["c"])
    assert states(pool)["a"] is State.INITIALISING


def test_who_is_given_the_service_and_hears_of_it_too_late_renews_the_lease_first() -> None:
    pool = pool_of("ab", reinitialise=1000, without_store="stop")
    pool.faults.loss = 1
    pool.run(TIMER)  # b wins, a hands over, and b does not hear of it
    pool.cut_off.add("b")
    pool.run(TIMER + SECOND)
    assert (pool.record.holder, pool.serving()) == ("b", [])
    pool.run(pool.record.lease + SECOND)
    pool.cut_off.clear()
    pool.clock.watchers.append(lambda: None if len(pool.turns) < 2 else seen.append(pool.serving()))
    seen: list[list[str]] = []
    pool.run(pool.clock.now() + 2 * SECOND)
    assert seen[0] == ["b"], "when it begins to serve it has a lease that runs"


class Checks:
    """A body whose checks end when the test says so."""

    def __init__(self) -> None:
        self.done: list[Callable[[], None]] = []
        self.said: list[str] = []

    def serve(self, epoch: int) -> None:
        self.said.append(f"serves {epoch}")

    def cease(self) -> None:
        self.said.append("ceases")

    def initialise(self, done: Callable[[], None]) -> None:
        self.done.append(done)

    def broadcast(self, message: Message) -> None:
        self.said.append(message.kind.value)


def test_only_the_check_of_this_time_makes_a_server_ready() -> None:
    """A check that says twice that all is well, or says it late, does not count for the next time."""
    clock, store, body = VirtualClock(), MemoryStore(), Checks()
    agent = Agent(
        "a",
        clock=clock,
        store=store,
        transport=body,
        schedule=Schedule(None, TIMER),
        policy=Competition(),
        body=body,
        timing=Timing(suspended_limit=SECOND),
    )
    agent.start()
    clock.run(3 * SECOND)
    assert agent.machine.state is State.INITIALISING
    body.done[0]()
    body.done[0]()
    assert agent.machine.state is State.SERVICE
    assert body.said == ["ready", "serves 1", "taken"]
    clock.run(3 * SECOND + TIMER + SECOND)
    assert agent.machine.state is State.INITIALISING
    assert body.said[3:] == ["ceases", "taken"]
    body.done[0]()
    assert agent.machine.state is State.INITIALISING
    body.done[1]()
    assert agent.machine.state is State.SERVICE


def test_a_server_that_was_stopped_past_its_lease_does_not_count_as_serving() -> None:
    pool = pool_of(without_store="stop")
    stopped = pool.agents["a"]
    assert stopped._timer is not None
    stopped._timer.cancel()
    pool.faults.loss = 1
    lease = pool.record.lease
    pool.run(lease - 1)
    assert stopped.serving(pool.clock.now())
    pool.run(lease + SECOND)
    assert stopped.machine.state is State.SERVICE
    assert pool.serving() == ["b"]


def test_without_its_controller_a_pool_stays_where_it_is() -> None:
    pool = pool_of(policy=CentralController())
    pool.run(TIMER + SECOND)
    assert pool.serving() == ["b"]
    pool.kill(CONTROLLER)
    pool.run(10 * TIMER)
    assert pool.serving() == ["b"]
    assert states(pool)["b"] is State.SUSPENDED
    pool.start_controller()
    pool.run(10 * TIMER + SECOND)
    assert pool.serving() in (["a"], ["c"])


def test_without_its_controller_a_dead_server_is_not_followed() -> None:
    pool = pool_of(policy=CentralController())
    pool.kill(CONTROLLER)
    pool.kill("a")
    pool.run(10 * TIMER)
    assert pool.serving() == []


def test_no_rotation_serves_until_death() -> None:
    pool = pool_of(policy=NoRotation())
    pool.run(50 * TIMER)
    assert starts(pool) == [("a", 0)]
    pool.kill("a")
    pool.run(51 * TIMER)
    assert pool.serving() == ["b"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"poll": 0}, "never read the record"),
        ({"lease": 2 * SECOND}, "`lease` ends before"),
        ({"alive": 2 * SECOND}, "`alive` ends before"),
        ({"margin": -1}, "negative"),
    ],
)
def test_patience_that_makes_no_sense(keys: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Timing(**keys)  # type: ignore[arg-type]


def test_patience_scales_with_speed_but_for_the_suspended_state() -> None:
    scaled = Timing(suspended_limit=7).scaled(60)
    assert (scaled.poll, scaled.lease, scaled.suspended_limit) == (60 * SECOND, 300 * SECOND, 7)
