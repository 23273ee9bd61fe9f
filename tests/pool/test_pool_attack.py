"""An intruder and detectors at a pool that is up: the page is changed, somebody sees it, and it is gone again."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from waiting import await_true

from testbed.lab.up import up
from testbed.net import namespace
from testbed.plan.load import load_text
from testbed.pool.attack.account import account
from testbed.pool.attack.detectors import Integrity, Patterns
from testbed.pool.attack.intruder import DEFACED, Intruder
from testbed.pool.attack.model import summarise
from testbed.pool.lab.pools import Pool

pytestmark = pytest.mark.root
LIMIT = 30.0
TOPOLOGY = """
name: attacked
pool:
  web: {servers: 2, timer: 2000s, detection: {live: true, period: 20s}, speed: 20, content: {size: 1KiB}}
nodes: {client: {}, intruder: {}}
links: [[client, core], [intruder, core]]
"""


def page(pool: Pool) -> str:
    """What a client gets."""

    def ask() -> str:
        with socket.create_connection((pool.address, 80), LIMIT) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    return namespace.inside(pool.lab.namespace("client"), ask)


def test_compromised_seen_and_clean_again(state: Path) -> None:
    """Without detectors the changed page stays; with them the service moves to a server that has it as it should be."""
    _, plan = load_text(TOPOLOGY)
    lab = up(plan, owner=os.getpid())
    pool: Pool = lab.subsystem("pool")["web"]
    first = pool.await_service()
    pool.await_event("assigned", first)  # it is written a little after it came true
    start = time.monotonic()
    assert DEFACED not in page(pool)
    integrity = Integrity(pool, period_s=2, probability=1, delay_s=0, seed=1)
    patterns = Patterns(pool, period_s=2, probability=1, delay_s=0, seed=1)
    assert not integrity.wrong(first, start)
    assert not patterns.wrong(first, start)
    intruder = Intruder(pool, "intruder", mean_s=0.1, seed=1)
    intruder.start()
    await_true(lambda: bool(pool.events("compromised")), "the intruder")
    intruder.stop()
    assert DEFACED in page(pool)
    assert integrity.wrong(first, start)
    assert patterns.wrong(first, start)
    assert pool.serving() == first

    integrity.start()
    patterns.start()
    second = pool.await_service(but=first, timeout=LIMIT)
    integrity.stop()
    patterns.stop()
    assert pool.events("detected", first)
    assert DEFACED not in page(pool)
    pool.await_state(first, "ready", timeout=LIMIT)
    assert not integrity.wrong(first, time.monotonic())
    found = account(pool, time.monotonic(), since=start)
    assert [interval.server for interval in found] == [first, second]
    assert found[0].compromised is not None
    assert found[0].detected is not None
    assert (found[0].requests, found[0].leaked) == (2, 1)
    assert (found[1].compromised, found[1].requests, found[1].leaked) == (None, 1, 0)
    assert 0 < summarise(found).share.value < 1
    lab.down()
