"""A pool of containers that rotates every 5 s under load: requests that failed, and wrong bytes.

``TESTBED_ROTATION_SECONDS`` shortens it. Besides what is wanted to be 0, the median cost of making a server anew.
"""

from __future__ import annotations

import os

from bench.figure import Figure
from bench.own_state import own_state
from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.pool.lab.clients import Clients

SECONDS = 300.0
TOPOLOGY = """
name: rotation
pool: {web: {servers: 3, runtime: container, timer: 5s, reinitialise: 4s, content: {size: 1MiB}}}
nodes: {client: }
links: [[client, core]]
"""


def measure(name: str) -> list[Figure]:
    """Bulk downloads and many small requests at once."""
    seconds = float(os.environ.get("TESTBED_ROTATION_SECONDS", SECONDS))
    with own_state():
        lab = up(load_text(TOPOLOGY)[1], owner=os.getpid())
        try:
            pool = lab.subsystem("pool")["web"]
            loads = [
                Clients(lab, "client", pool.address, path="/file", connections=2, seconds=seconds, pause=0.05),
                Clients(lab, "client", pool.address, path="/", connections=20, seconds=seconds, pause=0.1),
            ]
            found = [load.result(timeout=seconds + 60) for load in loads]
            renewals = [event["seconds"] * 1000 for event in pool.events("renewed")[len(pool.servers) :]]
            moved = pool.events("moved")
        finally:
            lab.down()
    return [
        Figure("rotation-5s failed", "requests", 0.0, (float(sum(len(seen["errors"]) for seen in found)),)),
        Figure("rotation-5s wrong", "answers", 0.0, (float(sum(len(seen["wrong"]) for seen in found)),)),
        Figure("rotation-5s requests", "requests", None, (float(sum(seen["requests"] for seen in found)),)),
        Figure("rotation-5s rotations", "rotations", None, (float(len(moved)),)),
        Figure("rotation-5s renewal", "ms", 250.0, tuple(renewals) or (0.0,)),
    ]
