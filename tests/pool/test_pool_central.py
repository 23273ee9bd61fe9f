"""A real pool with a central controller: it says who takes over, and while it is gone nobody does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.pool.lab.pools import Pool

pytestmark = pytest.mark.root

TOPOLOGY = """
name: central
pool: {web: {servers: 2, scheduler: central, connections: reset, timer: 2s, suspended: 2s}}
nodes: {client: {runtime: process}}
links: [[client, core]]
"""
LIMIT = 120.0
FETCH = """
import sys, urllib.request
url, patience = sys.argv[1:]
print(urllib.request.urlopen(url, timeout=float(patience)).headers["X-Server"])
"""


def fetch(pool: Pool, patience: float = 10) -> str:
    """Who answers a client; empty if nobody does."""
    return pool.lab.exec("client", ["python3", "-c", FETCH, f"http://{pool.address}/", str(patience)]).stdout.strip()


def told(pool: Pool, since: float, right: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
    """The first event after ``since`` that is ``right``, awaited."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for event in pool.events():
            if event["t"] >= since and right(event):
                return event
        time.sleep(0.05)
    pytest.fail(f"no {what} within {LIMIT} s: {pool.events()[-20:]}")


def test_the_central_controller_dies(state: Path) -> None:
    lab = up(load_text(TOPOLOGY)[1], f"central-{os.getpid()}", owner=os.getpid(), runtime="process")
    pool: Pool = lab.subsystem("pool")["web"]
    first = pool.await_service()
    assert pool.await_service(but=first, timeout=LIMIT) != first
    pool.kill_controller()
    since = time.monotonic()

    def serves_no_more(event: dict[str, Any]) -> bool:
        """Because the time for which it may be suspended is over, and not because another one takes over."""
        states = [e["state"] for e in pool.events("state", event["node"]) if e["t"] <= event["t"]]
        return event["what"] == "nobody" and states[-2:] == ["suspended", "initialising"]

    # migrations fall due, and nobody says who takes over: the server in service goes on, but not for ever
    answer = fetch(pool)
    assert answer in pool.servers or any(event["t"] >= since for event in pool.events("nobody"))
    told(pool, since, serves_no_more, "server that was suspended for too long")
    assert pool.serving() is None
    assert fetch(pool, 1) == ""
    pool.start_controller()
    assert pool.await_service(timeout=LIMIT) in pool.servers
