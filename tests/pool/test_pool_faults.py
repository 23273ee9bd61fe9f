"""The competition under lost, late and doubled messages, a store that fails, and servers that die.

Never are two in service. Once messages flow and the store answers, one is within a bounded time, if any is fit.
"""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.pool.agents.clock import SECOND
from testbed.pool.agents.competition import CentralController, Competition, Policy, RandomChoice, RoundRobin
from testbed.pool.agents.machine import State
from testbed.pool.agents.timing import Timing, WithoutStore
from testbed.pool.schedule.lfsr import PRIMITIVE, Lfsr
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Combined, PseudoRandom
from testbed.pool.simulation.virtual import CONTROLLER, Faults, VirtualPool

NAMES = ["a", "b", "c", "d"]
PROBABILITIES = st.sampled_from([0.0, 0.1, 0.5, 0.9])


def schedule() -> Schedule:
    register = Lfsr.seeded(PRIMITIVE, 1)
    return Schedule(Combined({"pseudo-random": PseudoRandom(register, 7 * SECOND)}), 20 * SECOND)


def policy_of(kind: str, servers: list[str]) -> Policy:
    policies: dict[str, Policy] = {
        "competition": Competition(),
        "round robin": RoundRobin(servers),
        "random": RandomChoice(3),
        "central": CentralController(),
    }
    return policies[kind]


class PoolUnderFaults(RuleBasedStateMachine):
    """Anything may happen between the calls; what must hold is checked after each action of the pool."""

    without_store: WithoutStore = "stop"
    store_may_be_partial = True
    """Whether it may answer some requests and not others."""

    @initialize(
        starts=st.lists(st.integers(0, 3 * SECOND), min_size=2, max_size=4),
        kind=st.sampled_from(["competition", "competition", "round robin", "random", "central"]),
        reinitialise=st.integers(0, 30 * SECOND),
        limit=st.none() | st.integers(1, 60 * SECOND),
        margin=st.integers(0, SECOND),
        seed=st.integers(0, 2**16),
    )
    def begin(self, starts: list[int], kind: str, reinitialise: int, limit: int | None, margin: int, seed: int) -> None:
        self.names = NAMES[: len(starts)]
        self.pool = VirtualPool(
            (),
            schedule,
            timing=Timing(margin=margin, suspended_limit=limit, without_store=self.without_store),
            policy=policy_of(kind, self.names),
            reinitialise=reinitialise,
            seed=seed,
        )
        self.pool.clock.watchers.append(self.never_two)
        for name, start in zip(self.names, starts, strict=True):  # so that they do not poll in step
            self.pool.run(self.pool.clock.now() + start)
            self.pool.start(name)

    def never_two(self) -> None:
        serving = self.pool.serving()
        assert len(serving) <= 1, f"{serving} serve at {self.pool.clock.now()}"

    @invariant()
    def one_turn_after_the_other(self) -> None:
        for earlier, later in pairwise(getattr(self, "pool", VirtualPool((), schedule)).turns):
            assert earlier.epoch < later.epoch
            assert earlier.end is not None, f"{earlier} goes on after {later} has begun"
            assert earlier.end <= later.start, f"{earlier} ends after {later} has begun"

    @rule(time=st.integers(1, 60 * SECOND))
    def let_time_pass(self, time: int) -> None:
        self.pool.run(self.pool.clock.now() + time)

    @rule(loss=PROBABILITIES, duplicate=PROBABILITIES, delay=st.integers(0, 30 * SECOND))
    def messages_suffer(self, loss: float, duplicate: float, delay: int) -> None:
        faults = self.pool.faults
        faults.loss, faults.duplicate, faults.delay = loss, duplicate, delay

    @precondition(lambda self: self.store_may_be_partial)
    @rule(request_lost=PROBABILITIES, answer_lost=PROBABILITIES, request_late=PROBABILITIES)
    def store_suffers(self, request_lost: float, answer_lost: float, request_late: float) -> None:
        faults = self.pool.faults
        faults.request_lost, faults.answer_lost, faults.request_late = request_lost, answer_lost, request_late

    @rule()
    def store_stops(self) -> None:
        self.pool.stop_store()

    @rule()
    def store_starts(self) -> None:
        self.pool.start_store()

    @rule(data=st.data())
    def server_dies(self, data: st.DataObject) -> None:
        self.pool.kill(data.draw(st.sampled_from([*self.names, CONTROLLER])))

    @rule()
    def serving_server_dies(self) -> None:
        for name in self.pool.serving():
            self.pool.kill(name)

    @rule()
    def all_start(self) -> None:
        for name in self.names:
            self.start(name)
        self.start(CONTROLLER)

    def start(self, name: str) -> None:
        if name == CONTROLLER:
            if self.pool.policy.central and not self.pool.controller:
                self.pool.start_controller()
        elif name not in self.pool.agents:
            self.pool.start(name)

    @precondition(lambda self: self.store_may_be_partial)
    @rule(data=st.data())
    def server_is_cut_off(self, data: st.DataObject) -> None:
        self.pool.cut_off.add(data.draw(st.sampled_from(self.names)))

    @rule()
    def all_are_joined(self) -> None:
        self.pool.cut_off.clear()

    @rule(data=st.data())
    def server_is_attacked(self, data: st.DataObject) -> None:
        agent = self.pool.agents.get(data.draw(st.sampled_from(self.names)))
        if agent:
            agent.attacked()

    @rule(data=st.data())
    def server_is_tampered_with(self, data: st.DataObject) -> None:
        self.pool.tampered.add(data.draw(st.sampled_from(self.names)))

    @rule(seed=st.integers(0, 2**32), length=st.integers(1, 60))
    def storm(self, seed: int, length: int) -> None:
        """Much at once and for long, which single rules rarely come to."""
        chance, pool = random.Random(seed), self.pool
        for _ in range(length):
            pool.run(pool.clock.now() + chance.randint(1, 12 * SECOND))
            name = chance.choice([*self.names, *pool.serving(), CONTROLLER])
            what = chance.randrange(8)
            if what == 0:
                pool.kill(name)
            elif what == 1:
                self.start(name)
            elif what == 2 and self.store_may_be_partial:
                pool.cut_off ^= {name}
            elif what == 3:
                pool.stop_store()
            elif what == 4:
                pool.start_store()
            elif what == 5:
                loss = [chance.choice([0.0, 0.0, 0.1, 0.5]) for _ in range(5)]
                store = loss[2:] if self.store_may_be_partial else ()
                pool.faults = Faults(loss[0], loss[1], chance.randint(0, 9 * SECOND), *store)
        self.one_turn_after_the_other()
        self.all_start()
        pool.start_store()
        pool.cut_off.clear()

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        pool.cut_off.clear()
        pool.start_store()
        self.start(CONTROLLER)
        late = max(pool.faults.delay, 30 * SECOND)
        pool.faults = Faults()
        pool.run(pool.clock.now() + late)  # what is under way arrives, as late as it may
        fit = {name for name, agent in pool.agents.items() if agent.machine.state is not State.INITIALISING}
        pool.run(pool.clock.now() + pool.timing.bound)
        still = {name for name in fit if pool.agents[name].machine.state is not State.INITIALISING}
        assert pool.serving() or not still, f"{still} could serve and nobody does"
        self.nobody_idle_for_long()
        self.service_moves()

    def nobody_idle_for_long(self) -> None:
        """Without faults there is no gap while anybody is ready."""
        idle = self.pool.clock.now()
        for _ in range(120):
            self.pool.run(self.pool.clock.now() + SECOND)
            ready = any(agent.machine.state is State.READY for agent in self.pool.agents.values())
            if self.pool.serving() or not ready:
                idle = self.pool.clock.now()
            assert self.pool.clock.now() - idle <= 2 * self.pool.timing.poll

    def service_moves(self) -> None:
        """And it goes on moving, if there are two to move between."""
        before = len(self.pool.turns)
        self.pool.run(self.pool.clock.now() + 2 * (20 + 30) * SECOND)
        if len(self.pool.agents.keys() - self.pool.tampered) > 1:
            assert len(self.pool.turns) > before


class ServingWithoutStore(PoolUnderFaults):
    """With ``without_store: serve`` the same holds as long as the store answers all servers or none."""

    without_store: WithoutStore = "serve"
    store_may_be_partial = False


TestPoolUnderFaults = PoolUnderFaults.TestCase
TestPoolUnderFaults.settings = settings(max_examples=40, stateful_step_count=12)
TestServingWithoutStore = ServingWithoutStore.TestCase
TestServingWithoutStore.settings = settings(max_examples=40, stateful_step_count=12)
