"""What does it help against an intruder that the server changes? Security against continuity, measured.

Pools that give the same service, each under attack by an intruder of the same strength, who needs an exponential time
(mean ``intruder``) for each new server in service. They differ in when the server changes: never, after a fixed time,
or when a detector saw something. Detectors look every ``look`` at the page's files and at the requests, notice with
``probability`` and report ``delay`` later. Durations are of the pool's time, but ``seconds``.

The report has, for each pool, the share of its time of service in which the intruder had the server, beside what is
expected of an exponential intruder; how long servers were exposed; and how many requests were answered meanwhile.

    testbed run pool_attack                                     two minutes
    testbed run pool_attack --param intruder=60s --param probability=0.3 --param seconds=300s
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.pool.attack.account import account
from testbed.pool.attack.detectors import Detector, Integrity, Patterns
from testbed.pool.attack.intruder import Intruder
from testbed.pool.attack.report import EVENT
from testbed.pool.lab.clients import Clients
from testbed.pool.lab.pools import Pool, Pools

pytestmark = pytest.mark.testbed(
    topology="pool-attack.yaml",
    parameters={
        "intruder": "120s",
        "look": "5s",
        "probability": "0.8",
        "delay": "2s",
        "seconds": "90s",
        "connections": "4",
        "pause": "100ms",
    },
)


def test_pool_attack(lab: Lab, measure: Measure) -> None:
    """All pools at the same time."""
    pools: Pools = lab.subsystem("pool")
    for repeat in range(1, measure.repeats + 1):
        _trial(lab, measure, list(pools.pools.values()), repeat)


def _trial(lab: Lab, measure: Measure, pools: list[Pool], repeat: int) -> None:
    seconds, mean, seed = measure.seconds("seconds"), measure.seconds("intruder"), measure.seed + repeat
    attackers = [Intruder(pool, "intruder", mean, seed) for pool in pools]
    detectors = [one for pool in pools if pool.spec.detection is not None for one in _detectors(measure, pool, seed)]
    load = {"connections": measure.integers("connections")[0], "pause": measure.seconds("pause"), "seconds": seconds}
    with measure.step(f"attack-r{repeat}", experiment="attack", repeat=repeat):
        start = time.monotonic()
        clients = {pool.name: Clients(lab, "client", pool.address, **load) for pool in pools}
        for one in (*attackers, *detectors):
            one.start()
        found = {name: crowd.result(seconds + 60) for name, crowd in clients.items()}
        end = time.monotonic()
        for one in (*attackers, *detectors):
            one.stop()
        for pool in pools:
            intervals = [interval.plain() for interval in account(pool, end, since=start)]
            answer = found[pool.name]
            measure.event(
                EVENT,
                pool.layout.dispatcher,
                pool=pool.name,
                repeat=repeat,
                intruder=mean,
                timer=None if pool.spec.scheduler == "none" else pool.spec.timer / 1e6,
                detection=pool.spec.detection is not None,
                intervals=intervals,
                asked=answer["requests"],
                errors=answer["errors"][:20],
                wrong=answer["wrong"][:20],
            )
    for pool in pools:
        assert not found[pool.name]["wrong"], f"{pool.name} gave wrong bytes"


def _detectors(measure: Measure, pool: Pool, seed: int) -> list[Detector]:
    settings = {
        "period_s": measure.seconds("look"),
        "probability": float(measure.text("probability")),
        "delay_s": measure.seconds("delay"),
        "seed": seed,
    }
    return [Integrity(pool, **settings), Patterns(pool, **settings)]
