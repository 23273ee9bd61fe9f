"""An onion service whose instances are a rotating pool: what do clients notice when the service moves?

One instance serves at a time. When a migration is due, by the schedule of experiment 2 of the paper on pools (sequence,
detection and timer; ``speed`` times as fast), the instance that has been ready longest starts with new files and a
new tor and publishes. ``overlap`` after all HSDirs have acknowledged that, the old one takes leave: for ``leave`` it
has no introduction points any more, but still serves those that it was introduced to. Then it is ended. With ``kill``
the first instance in service that comes so far into its turn is killed. All clients fetch again and again, a new
circuit each time, and fresh clients too; every byte is verified. The HSDirs are read back all the time, and clients log
why a request took long. ``traffic`` is about how often each client fetches from another service of the topology too.

    testbed run onion_pool                                           two minutes and a half
    testbed run onion_pool --param overlap=0s,20s --param leave=0s,2s --repeats 3
    testbed run onion_pool --param signal=SIGKILL --param traffic=none,1s
    testbed run onion_pool --param kill=5s                           one dies in its turn
"""

import time
from dataclasses import dataclass
from itertools import product
from signal import SIGKILL
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.model.quantities import parse_duration_us
from testbed.pool.lab.onion import Move, OnionPool
from testbed.pool.report.onion import EVENT, EXPERIMENT, KILLED
from testbed.pool.report.published import EXPERIMENT_2
from testbed.tor.measure.clientlog import IntroductionLogs
from testbed.tor.measure.experiment import (
    EXPECTED,
    Subject,
    first_service,
    one_number,
    record_introductions,
    signals,
    traffics,
)
from testbed.tor.measure.watch import Served, asking, hsdirs_recorded, light_traffic
from testbed.tor.onion.instances import end

pytestmark = pytest.mark.testbed(
    topology="onion-pool.yaml",
    hold=["onions"],
    parameters={
        "speed": "4",
        "seconds": "120s",
        "overlap": "5s",
        "leave": "2s",
        "signal": "SIGINT",
        "traffic": "1s",
        "kill": "none",
        "limit": "75s",
        "pause": "1s",
        "every": "1s",
    },
)

HSDIR_PERIOD = 5.0
"""Seconds between two readings of the HSDirs."""


@dataclass(frozen=True)
class Way:
    """How the instances of one step take turns."""

    signal: str
    number: int
    overlap: str
    leave: str
    traffic: str
    other: str
    """The service that is fetched beside the pool's; empty: none."""
    pause: float
    """Seconds between two of those fetches of a client."""

    @property
    def told(self) -> dict[str, Any]:
        """For the step."""
        return {"signal": self.signal, "overlap": self.overlap, "leave": self.leave, "traffic": self.traffic}


def test_onion_pool(lab: Lab, measure: Measure) -> None:
    """Each signal with each overlap, leave and traffic, as often as repeats say."""
    subject = first_service(lab, measure)
    subject.watch()
    beside = traffics(measure, subject.other)
    overlaps, leaves = durations(measure, "overlap"), durations(measure, "leave")
    ways = [
        Way(name, number, overlap, leave, traffic, other, pause)
        for (name, number), overlap, leave, (traffic, (other, pause)) in product(
            signals(measure).items(), overlaps, leaves, beside.items()
        )
    ]
    subject.start_other()
    for repeat in range(1, measure.repeats + 1):
        for way in ways:
            try:
                _trial(subject, way, repeat)
            finally:
                subject.onions.stop(subject.service)


def durations(measure: Measure, parameter: str) -> list[str]:
    """The words of a parameter, each of which is a duration; TestbedError for what is none."""
    words = measure.words(parameter)
    for word in words:
        try:
            seconds(word)
        except ValueError as error:
            raise TestbedError(f"parameter {parameter}: {error}", remedy=f"write --param {parameter}=0s,5s") from error
    return words


def seconds(word: str) -> float:
    """Of a duration. ValueError if it is none."""
    return parse_duration_us(word) / 1e6


def _trial(subject: Subject, way: Way, repeat: int) -> None:
    onions, measure, service = subject.onions, subject.measure, subject.service
    schedule, speed = EXPERIMENT_2.schedule(), one_number(measure, "speed")
    pool = OnionPool(onions, service, schedule, speed=speed, progress=measure.progress)
    pool.begin()
    onions.forget_descriptors()
    network, clients = onions.network, set(onions.network.clients)
    step = "-".join([*map(str.lower, way.told.values()), f"r{repeat}"])
    detail = {"experiment": EXPERIMENT, "repeat": repeat, "speed": speed, "nodes": onions.instances(service)}
    with (
        measure.step(step, **detail, **way.told, **EXPECTED),
        hsdirs_recorded(subject, step, period=HSDIR_PERIOD),
        light_traffic(onions, way.other, pause=way.pause),
        IntroductionLogs(network, clients) as logs,
        asking(subject, step) as served,
    ):
        moves = _rotate(pool, measure, step, way)
        assert moves, "no migration fell due; set seconds higher"
        # until all clients have been served after the last migration, so that its figures are whole
        never = served.await_all(clients, moves[-1].left, measure.seconds("limit"))
        measure.progress.update("served again", len(clients) - len(never), len(clients))
        _record_waits(measure, step, logs, served, sorted(clients), moves)


def _rotate(pool: OnionPool, measure: Measure, step: str, way: Way) -> list[Move]:
    moves: list[Move] = []
    until = pool.real(0) + measure.seconds("seconds")
    killing = None if measure.text("kill") == "none" else measure.seconds("kill")
    while time.monotonic() < until:
        kill_at = until if killing is None else time.monotonic() + killing
        call = pool.await_call(min(until, kill_at))
        if call is None and kill_at < until:
            killed = end(pool.onions.lab, [pool.holder], SIGKILL)
            measure.run.event(KILLED, pool.holder, t=killed, step=step)
            killing = None
            call = pool.await_call(until)
        if call is None:
            break
        move = pool.move(call, overlap=seconds(way.overlap), leave=seconds(way.leave), number=way.number)
        if move is not None:
            moves.append(move)
            _record(measure, step, move)
    return moves


def _record(measure: Measure, step: str, move: Move) -> None:
    turn = move.turn
    measure.run.event(
        EVENT,
        turn.to,
        t=move.left,
        step=step,
        due=turn.call.at / 1e6,
        cause=turn.call.cause,
        leaving=turn.leaving,
        handover=round(turn.handover, 3),
        both=round(move.left - turn.published, 3),
        leave=round(move.ended - move.left, 3),
        held=move.held,
        hsdirs=move.hsdirs,
        revisions=move.revisions,
        repaired=list(move.repaired),
        failed=list(turn.failed),
    )


def _record_waits(
    measure: Measure, step: str, logs: IntroductionLogs, served: Served, clients: list[str], moves: list[Move]
) -> None:
    """What clients logged from each end of an instance until they were served again, or the next one ended."""
    ends = [move.left for move in moves]
    for since, following in zip(ends, [*ends[1:], time.monotonic()], strict=True):
        first = served.first_after(since)
        until = {client: min(first.get(client, following), following) for client in clients}
        record_introductions(measure, step, logs, clients, since, until)
