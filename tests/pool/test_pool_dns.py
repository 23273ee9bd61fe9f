"""A pool of name servers answers at its service address, also after the server in service has died."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from testbed.lab.up import up
from testbed.net import namespace
from testbed.plan.load import load_text
from testbed.pool.pools import Pool
from testbed.pool.server.serving import probe_of

pytestmark = pytest.mark.root

TOPOLOGY = """
name: named
pool: {dns: {servers: 2, service: dns, timer: 300s}}
nodes: {client: }
links: [[client, core]]
"""


def test_names_are_answered(state: Path) -> None:
    lab = up(load_text(TOPOLOGY)[1], f"named-{os.getpid()}", owner=os.getpid())
    pool: Pool = lab.subsystem("pool")["dns"]
    ask = partial(namespace.inside, lab.namespace("client"), probe_of(pool.spec, pool.address))
    before = pool.await_service()
    assert ask()
    pool.kill_server(before)
    assert pool.await_service(but=before) != before
    assert ask()
