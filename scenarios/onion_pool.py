"""An onion service whose instances are a rotating pool: what do clients notice when the service moves?

One instance serves at a time. When a migration is due, by the schedule of experiment 2 of the paper on pools (sequence,
detection and timer; ``speed`` times as fast), the instance that has been ready longest starts with new files and a
new tor and publishes. ``overlap`` after all HSDirs have acknowledged that, the old one is ended. All clients fetch
again and again, a new circuit each time, and fresh clients too; every byte is verified. The HSDirs are read back all
the time.

    testbed run onion_pool                                           two minutes and a half
    testbed run onion_pool --param signal=SIGKILL,SIGINT --param overlap=0s,10s --repeats 3
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.model.quantities import parse_duration_us
from testbed.pool.onion import Move, OnionPool
from testbed.pool.onion_report import EVENT
from testbed.pool.published import EXPERIMENT_2
from testbed.tor.experiment import EXPECTED, one_number, signals
from testbed.tor.onions import OnionServices
from testbed.tor.watch import Served, asking, hsdirs_recorded

pytestmark = pytest.mark.testbed(
    topology="onion-pool.yaml",
    hold=["onions"],
    parameters={
        "speed": "4",
        "seconds": "120s",
        "overlap": "5s",
        "signal": "SIGINT",
        "limit": "75s",
        "pause": "1s",
        "every": "1s",
    },
)

HSDIR_PERIOD = 5.0
"""Seconds between two readings of the HSDirs."""


def test_onion_pool(lab: Lab, measure: Measure) -> None:
    """Each signal and each overlap, as often as repeats say."""
    onions: OnionServices = lab.subsystem("onions")
    service = next(iter(onions.services))
    measure.watch(lab, onions.services[service].attach or "core", onions.instances(service))
    named = signals(measure)
    overlaps = {word: parse_duration_us(word) / 1e6 for word in measure.words("overlap")}
    for repeat in range(1, measure.repeats + 1):
        for signal, number in named.items():
            for word, overlap in overlaps.items():
                step = f"{signal.lower()}-{word}-r{repeat}"
                detail = {"experiment": "onion-pool", "signal": signal, "overlap": word, "repeat": repeat}
                try:
                    _trial(onions, measure, service, step, detail, overlap, number)
                finally:
                    onions.stop(service)


def _trial(
    onions: OnionServices,
    measure: Measure,
    service: str,
    step: str,
    detail: dict[str, object],
    overlap: float,
    number: int,
) -> None:
    schedule, speed = EXPERIMENT_2.schedule(), one_number(measure, "speed")
    pool = OnionPool(onions, service, schedule, speed=speed, progress=measure.progress)
    pool.begin()
    onions.forget_descriptors()
    clients = set(onions.network.clients)
    with (
        measure.step(step, **detail, speed=speed, nodes=onions.instances(service), **EXPECTED),
        hsdirs_recorded(onions, service, measure, step, period=HSDIR_PERIOD),
        asking(onions, service, measure, step) as served,
    ):
        moves = _rotate(pool, measure, step, overlap, number)
        assert moves, "no migration fell due; set seconds higher"
        _recovered(served, measure, clients, moves[-1])


def _rotate(pool: OnionPool, measure: Measure, step: str, overlap: float, number: int) -> list[Move]:
    moves: list[Move] = []
    end = pool.real(0) + measure.seconds("seconds")
    while pool.real((due := pool.next()).at) < end:
        time.sleep(max(0.0, pool.real(due.at) - time.monotonic()))  # the schedule's moment, not a wait for something
        move = pool.move(due, overlap=overlap, number=number)
        moves.append(move)
        measure.run.event(
            EVENT,
            move.to,
            t=move.ended,
            step=step,
            due=due.at / 1e6,
            cause=due.cause,
            leaving=move.leaving,
            handover=round(move.handover, 3),
            both=round(move.ended - move.published, 3),
            held=move.held,
            hsdirs=move.hsdirs,
            revisions=move.revisions,
        )
    return moves


def _recovered(served: Served, measure: Measure, clients: set[str], last: Move) -> None:
    """Wait until all clients have been served after the last migration, so that its figures are whole."""
    never = served.await_all(clients, last.ended, measure.seconds("limit"))
    measure.progress.update("served again", len(clients) - len(never), len(clients))
