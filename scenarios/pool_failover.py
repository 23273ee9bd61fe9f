"""What do clients notice when a server of a rotating pool dies, in each of its states?

The pool does not rotate by itself here. One client asks for the page again and again on new connections; meanwhile a
server is killed that is in `service`, `ready`, `initialising` or `suspended` (the store is away then, and nobody can
take over until it is back). The report has how long nobody got an answer, and when the pool was whole again.

    testbed run pool_failover                                       half a minute a repeat
    testbed run pool_failover --param states=service --repeats 10
"""

import time

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.pool.lab.course import FAILOVER
from testbed.pool.lab.pools import Pool

pytestmark = pytest.mark.testbed(
    topology="pool.yaml", hold=["pool"], parameters={"states": "service,ready,initialising,suspended"}
)

QUIET = {"sequence": None, "detection": None, "speed": 1, "connections": "reset"}


def test_pool_failover(lab: Lab, measure: Measure) -> None:
    """Each state, as often as repeats say."""
    pools = lab.subsystem("pool")
    pool = Pool(lab, "web", pools["web"].spec.model_copy(update=QUIET))
    pool.start(measure.progress)
    for repeat in range(1, measure.repeats + 1):
        for state in measure.words("states"):
            _trial(lab, measure, pool, state, repeat)


def _trial(lab: Lab, measure: Measure, pool: Pool, state: str, repeat: int) -> None:
    serving = _whole(pool)
    other = next(server for server in pool.servers if server != serving)
    with (
        measure.step(f"{state}-r{repeat}", state=state, repeat=repeat),
        measure.availability(lab, "client1", f"http://{pool.address}/index.html", period=0.05, timeout=1) as watch,
    ):
        time.sleep(0.5)
        since = time.monotonic()
        victim = _kill(pool, state, serving, other)
        if state == "suspended":
            time.sleep(1)
            pool.start_store()
        pool.await_event("renewed", victim, since=since)
        _whole(pool)
        seconds = time.monotonic() - since
        time.sleep(0.5)
    outages = [outage.seconds for outage in watch.stop().outages]
    out = max((seconds for seconds in outages if seconds is not None), default=0.0)
    measure.event(FAILOVER, victim, state=state, repeat=repeat, out=out, whole=seconds, to=pool.serving())


def _kill(pool: Pool, state: str, serving: str, other: str) -> str:
    """Kill a server that is in this state; which one."""
    since = time.monotonic()
    if state in ("service", "ready"):
        victim = serving if state == "service" else other
        pool.kill_server(victim)
        return victim
    if state == "initialising":
        pool.kill_server(other)  # it is made anew now, and killed while it is
        pool.await_event("died", other, since=since)
        pool.kill_server(other)
        return other
    if state == "suspended":
        pool.kill_store()
        pool.await_event("state", serving, since=since)  # its lease ends: suspended
        pool.kill_server(serving)
        return serving
    raise TestbedError(f"parameter states: {state!r} is no state", remedy="service, ready, initialising, suspended")


def _whole(pool: Pool) -> str:
    """Wait until one serves and the others are ready; who serves."""
    serving = pool.await_service()
    for server in pool.servers:
        if server != serving:
            pool.await_state(server, "ready")
    return serving
