"""A pool of name servers answers at its service address, also after the server in service has died."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from testbed.lab.up import up
from testbed.net import namespace
from testbed.plan.load import load_text
from testbed.pool.lab.pools import Pool
from testbed.pool.server.serving import probe_of

pytestmark = pytest.mark.root

TOPOLOGY = """
name: named
pool: {dns: {servers: 2, service: dns, timer: 300s, reinitialise: 20s}}
nodes: {client: {runtime: process}}
links: [[client, core]]
"""


@pytest.mark.parametrize("runtime", ["process", pytest.param("container", marks=pytest.mark.engine)])
def test_names_are_answered(state: Path, runtime: Literal["process", "container"]) -> None:
    """In containers too, on the testbed's own image, where the runtime is not the topology's but the user's."""
    lab = up(load_text(TOPOLOGY)[1], f"named-{os.getpid()}", owner=os.getpid(), runtime=runtime)
    pool: Pool = lab.subsystem("pool")["dns"]
    assert {lab.node(server).runtime for server in pool.servers} == {runtime}
    ask = partial(namespace.inside, lab.namespace("client"), probe_of(pool.spec, pool.address))

    def answered() -> bool:
        """Each question is given a tenth of a second, which a busy machine may need for itself."""
        deadline = time.monotonic() + 30
        while not (found := ask()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    before = pool.await_service()
    assert answered()
    pool.kill_server(before)
    assert pool.await_service(but=before) != before
    assert answered()
