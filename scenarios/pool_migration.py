"""Connections that go on while the service moves from server to server: what do clients notice?

Bulk downloads, uploads and many small requests, from a near client and from one behind a link with delay and loss,
while the pool changes its server again and again and makes the old one anew. Every byte is verified; none may be lost
or wrong. The report has the longest pause of each connection, and what the moves took.

    testbed run pool_migration                                  two minutes
    testbed run pool_migration --param small=500 --param seconds=120s --testbed-repeats 3
"""

import time

import pytest

from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.pool.lab.clients import Clients
from testbed.pool.lab.pools import Pool
from testbed.pool.migrate.report import EVENT

pytestmark = pytest.mark.testbed(
    topology="pool-migration.yaml",
    parameters={"seconds": "30s", "bulk": "2", "uploads": "2", "small": "50", "pause": "500ms", "upload": "1048576"},
)


def test_pool_migration(lab: Lab, measure: Measure) -> None:
    """All kinds of clients at once, from both places."""
    pool: Pool = lab.subsystem("pool")["web"]
    for repeat in range(1, measure.repeats + 1):
        _trial(lab, measure, pool, repeat)


def _trial(lab: Lab, measure: Measure, pool: Pool, repeat: int) -> None:
    seconds = measure.seconds("seconds")
    with measure.step(f"migration-r{repeat}", experiment="migration", repeat=repeat):
        crowds = {(kind, node): _clients(lab, measure, pool, kind, node) for kind in KINDS for node in ("near", "far")}
        start = time.monotonic()
        time.sleep(seconds)
        found = {key: clients.finish() for key, clients in crowds.items()}
        moves = [event for event in pool.events("moved") if event["t"] >= start]
        for (kind, node), seen in found.items():
            gaps, errors, wrong = seen["gaps"], seen["errors"], seen["wrong"]
            facts = {key: seen[key] for key in ("connections", "requests", "bytes", "servers")}
            measure.event(EVENT, node, repeat=repeat, load=kind, gaps=gaps, errors=errors, wrong=wrong, **facts)
        for move in moves:
            facts = {key: move.get(key) for key in ("moved", "failed", "left", "bytes", "seconds", "to", "reasons")}
            measure.event(f"{EVENT}_move", move["node"], repeat=repeat, **facts)
    assert moves, "the service did not move"
    for key, seen in found.items():
        assert (seen["errors"], seen["wrong"]) == ([], []), f"{key} lost something"


KINDS = ("bulk", "uploads", "small")


def _clients(lab: Lab, measure: Measure, pool: Pool, kind: str, node: str) -> Clients:
    number = measure.integers(kind)[0]
    if kind == "small":
        return Clients(lab, node, pool.address, connections=number, pause=measure.seconds("pause"), seconds=3600)
    if kind == "uploads":
        size = measure.integers("upload")[0]
        return Clients(lab, node, pool.address, connections=number, upload=size, seconds=3600)
    return Clients(lab, node, pool.address, path="/file", connections=number, seconds=3600)
