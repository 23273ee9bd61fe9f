"""Real pools: rotation under load, and whatever is killed is survived. One lab, at real speed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.pool.daemon import rpc
from testbed.pool.lab.pools import Pool

pytestmark = pytest.mark.root

TOPOLOGY = """
name: rotating
pool:
  web: {servers: 3, connections: CONNECTIONS, runtime: RUNTIME, sequence: {period: 60s, bits: "0"}, timer: 300s}
nodes: {client: }
links: [[client, core]]
"""


def lab_of(connections: str, runtime: str = "process") -> Lab:
    text = TOPOLOGY.replace("CONNECTIONS", connections).replace("RUNTIME", runtime)
    return up(load_text(text)[1], f"rot-{connections}-{runtime}-{os.getpid()}", owner=os.getpid())


@pytest.fixture(scope="module")
def pool(module_state: Path) -> Pool:
    """Three servers that move when a test says so: a server that is killed hands over."""
    pool: Pool = lab_of("reset").subsystem("pool")["web"]
    return pool


def fetch(pool: Pool) -> str:
    """Who answers a client."""
    argv = ["python3", "-c", FETCH, pool.address]
    return pool.lab.exec("client", argv, check=True).stdout.strip()


FETCH = (
    "import sys,urllib.request as u;print(u.urlopen(f'http://{sys.argv[1]}/index.html',timeout=10).headers['X-Server'])"
)


def all_well(pool: Pool) -> None:
    """One serves and is the one that answers; the others are ready."""
    serving = pool.await_service()
    for server in pool.servers:
        if server != serving:
            pool.await_state(server, "ready")
    assert fetch(pool) == serving


def ready_beside(pool: Pool, serving: str) -> str:
    """Another server than the one in service, as soon as it is ready."""
    other = next(server for server in pool.servers if server != serving)
    pool.await_state(other, "ready")
    return other


def start_agent(pool: Pool, server: str) -> None:
    """Start it again; back when it takes part, for until then the store says what the old one said last."""
    since = time.monotonic()
    pool.start_agent(server)
    assert pool.await_event("state", server, since=since)["state"] == "initialising"


def test_clients_get_the_server_in_service(pool: Pool) -> None:
    all_well(pool)


def test_a_pool_that_competes_has_no_controller(pool: Pool) -> None:
    with pytest.raises(TestbedError, match="no central controller"):
        pool.kill_controller()


def test_the_management_network_is_out_of_a_servers_reach(pool: Pool) -> None:
    address = pool.world.address(pool.layout.store)
    code = "import socket,sys;socket.create_connection((sys.argv[1],int(sys.argv[2])),1)"
    for node in (pool.servers[0], "client"):
        for where, port in ((address, "7401"), (pool.world.address(pool.name), "7402")):
            assert pool.lab.exec(node, ["python3", "-c", code, where, port]).returncode


def test_the_server_in_service_dies(pool: Pool) -> None:
    before, since = pool.await_service(), time.monotonic()
    pool.kill_server(before)
    assert pool.await_event("died", before, since=since)["state"] == "service"
    assert pool.await_service(but=before) != before
    all_well(pool)


def test_a_ready_server_dies(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    other = ready_beside(pool, serving)
    pool.kill_server(other)
    assert pool.await_event("died", other, since=since)["state"] == "ready"
    pool.await_event("renewed", other, since=since)
    all_well(pool)
    assert pool.serving() == serving


def test_a_server_dies_while_it_is_made(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    other = ready_beside(pool, serving)
    pool.kill_server(other)
    pool.await_event("died", other, since=since)
    for _ in range(5):
        pool.kill_server(other)  # whatever there is of it
        time.sleep(0.02)
    all_well(pool)
    assert not [event for event in pool.events("alarm", other) if event["t"] > since]


def test_the_agent_of_the_server_in_service_is_killed(pool: Pool) -> None:
    before = pool.await_service()
    pool.kill_agent(before)
    assert pool.await_service(but=before) != before
    start_agent(pool, before)
    all_well(pool)


def test_the_agent_of_a_ready_server_is_killed(pool: Pool) -> None:
    serving = pool.await_service()
    other = next(server for server in pool.servers if server != serving)
    pool.kill_agent(other)
    assert fetch(pool) == serving
    start_agent(pool, other)
    all_well(pool)


def test_the_agent_of_a_server_that_is_made_anew_is_killed(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    other = ready_beside(pool, serving)
    pool.kill_server(other)
    pool.await_event("died", other, since=since)
    pool.kill_agent(other)
    start_agent(pool, other)
    all_well(pool)
    assert pool.serving() == serving


def test_the_agent_of_a_suspended_server_is_killed(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    pool.kill_store()
    assert pool.await_event("state", serving, since=since)["state"] == "suspended"
    pool.kill_agent(serving)
    assert fetch(pool) == serving  # nobody has told the dispatcher otherwise
    pool.start_store()
    assert pool.await_service(but=serving) != serving
    start_agent(pool, serving)
    all_well(pool)


def test_the_store_is_killed_and_the_server_goes_on(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    pool.kill_store()
    # its lease ends, and nobody can take over: the paper's suspended state
    assert pool.await_event("state", serving, since=since)["state"] == "suspended"
    assert fetch(pool) == serving
    with pytest.raises(rpc.Lost):
        pool.record()
    pool.start_store()
    all_well(pool)


def test_the_dispatchers_control_is_killed_and_clients_go_on(pool: Pool) -> None:
    serving = pool.await_service()
    pool.kill_dispatcher()
    assert fetch(pool) == serving
    pool.start_dispatcher()
    assert pool.serving() == serving  # it remembers, and no older word can move clients
    all_well(pool)


def test_a_tampered_server_never_becomes_ready(pool: Pool) -> None:
    serving, since = pool.await_service(), time.monotonic()
    other = next(server for server in pool.servers if server != serving)
    pool.await_state(other, "ready")
    path = Path(pool.tamper(other))
    pool.kill_server(other)
    found = pool.await_event("alarm", other, since=since)["found"]
    assert any("other content" in text for text in found), found
    pool.await_state(other, "initialising")
    assert fetch(pool) == pool.await_service() != other
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    pool.kill_agent(other)
    start_agent(pool, other)
    all_well(pool)
