"""Fresh clients on a real network: who serves them, what is said of those that fail, and that nothing is left."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from publishing_world import NETWORK, await_true, published

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.ownership import processes
from testbed.measure.measure import Measure
from testbed.measure.reader import RunReader
from testbed.measure.store import Run
from testbed.progress import Silent
from testbed.tor.measure.experiment import onion_target
from testbed.tor.measure.fresh import FreshClients, FreshFetch, fresh_clients
from testbed.tor.measure.freshprobe import FreshProbe, RecordedFreshClients, fresh_recorder
from testbed.tor.measure.split import split
from testbed.tor.network import TorNetwork
from testbed.tor.onion.services import OnionServices
from testbed.tor.protocol.keys import onion_address, onion_key

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: fresh-test
{NETWORK}
onions:
  shop: {{instances: 2, runtime: process, content: {{size: 16KiB}}}}
"""


@pytest.fixture(scope="module")
def lab(shared_network: Path) -> Lab:
    """A network with two instances that published together."""
    return published(TOPOLOGY, 2, "simultaneous")


@pytest.fixture(autouse=True)
def nothing_left(lab: Lab) -> Iterator[None]:
    """After each test the same processes run as before, and no folder of a fresh client is left."""
    before = set(processes(lab.id))
    yield
    assert set(processes(lab.id)) == before
    assert not [path for client in ("client1", "client2") for path in lab.node_folder(client).glob("f*-*")]


def test_they_fetch_and_say_who_served(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """Each has the whole file, from one of the instances that an HSDir names; they are spread over the clients."""
    told: list[FreshFetch] = []
    held = {entry.instance for entry in onions.hsdir_map("shop")}
    found = fresh_clients(tor, 16, onions.address("shop"), size=16 * 1024, seed=lab.plan.seed, on_result=told.append)
    assert [fetched.outcome for fetched in found] == ["ok"] * 16, found
    assert found == told
    assert {fetched.instance for fetched in found} <= held
    assert split([fetched.instance for fetched in found], onions.instances("shop")).reached >= 1
    assert sorted(fetched.number for fetched in found) == list(range(1, 17))
    assert Counter(fetched.node for fetched in found) == {f"client{number}": 4 for number in range(1, 5)}
    for fetched in found:
        assert fetched.ready is not None
        assert fetched.first_byte is not None
        assert fetched.last_byte is not None
        assert fetched.started < fetched.ready < fetched.first_byte <= fetched.last_byte <= fetched.ended
        assert fetched.bytes == 16 * 1024


def test_a_scenario_gets_them_recorded(onions: OnionServices, tmp_path: Path) -> None:
    """The fixture gives the only service's content by the lab's seed; each is in the store as soon as it ended."""
    run = Run.create(tmp_path, "by_hand", onions.lab.plan, seed=1)

    class Watched(Silent):
        def update(self, stage: str, done: int, total: int, note: str = "") -> None:
            stored.append((done, len(RunReader(run.path).events("fresh"))))

    stored: list[tuple[int, int]] = []
    measure = Measure(run, repeats=1, seed=1, parameters={}, progress=Watched())
    clients = RecordedFreshClients(onions, measure)
    found = clients(6, step="one", nodes=["client2"])
    assert [fetched.outcome for fetched in found] == ["ok"] * 6
    assert stored == [(done, done) for done in range(1, 7)]
    with clients.every(0.3, step="two"):
        await_true(lambda: len(RunReader(run.path).events("fresh")) > 6, "one that sets out by itself")
    events = RunReader(run.path).events("fresh")
    assert [event.detail["step"] for event in events] == ["one"] * 6 + ["two"] * (len(events) - 6)
    recorded = Counter(event.detail["instance"] for event in events[:6])  # as they ended, not as they set out
    assert recorded == Counter(fetched.instance for fetched in found)
    assert {event.node for event in events[:6]} == {"client2"}
    with pytest.raises(TestbedError, match="there is no service 'nosuch'"):
        clients(1, service="nosuch")
    run.close("passed")


def test_a_service_that_is_not_there(lab: Lab, tor: TorNetwork) -> None:
    """The failure is one of fetching, and tor had a circuit: its own words say so."""
    address = onion_address(onion_key(6, "nobody").public)
    (fetched,) = fresh_clients(tor, 1, address, size=1, seed=0, timeout=30)
    assert fetched.outcome.startswith("socks-"), fetched
    assert "PROGRESS=100" in fetched.message
    assert fetched.instance == ""
    assert fetched.last_byte is None


def test_bootstrapping_that_fails_is_told_apart(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """Without a relay that can be reached the outcome is ``bootstrap``, not a matter of the service."""
    with FreshClients(tor, onion_target(onions, "shop"), timeout=4) as clients:
        clients._authorities = ["nobody orport=9 no-v2 v3ident=" + "A" * 40 + " 10.9.9.9:9 " + "B" * 40]
        clients._files = {}
        fetched = clients.one()
    assert fetched.outcome == "bootstrap", fetched
    assert "PROGRESS=" in fetched.message


def test_a_tor_that_does_not_start(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """What tor says of its configuration is in the message."""
    with FreshClients(tor, onion_target(onions, "shop")) as clients:
        clients._extra = {"NoSuchOption": ("1",)}
        fetched = clients.one()
    assert fetched.outcome == "start"
    assert "NoSuchOption" in fetched.message


def test_those_under_way_end_with_the_block(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """Stopping does not wait for time-outs: what is under way is ``unfinished``, as is all that is asked for later."""
    instances = [item for item in lab.processes() if item.node.startswith("shop") and item.service == "tor"]
    for process in instances:
        process.signal(signal.SIGSTOP)  # so that no fetch can end by itself
    try:
        clients = FreshClients(tor, onion_target(onions, "shop"), timeout=100)
        results: list[FreshFetch] = []
        thread = threading.Thread(target=lambda: results.extend(clients.many(6, parallel=3)))
        thread.start()
        deadline = time.monotonic() + 30
        while len(clients._running) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        clients.stop()
        thread.join(60)  # and not 100, which is what a fetch may take
        assert not thread.is_alive()
        assert [fetched.outcome for fetched in results] == ["unfinished"] * 6
    finally:
        for process in instances:
            process.signal(signal.SIGCONT)


def test_the_probe_goes_on_until_the_end(lab: Lab, tor: TorNetwork, onions: OnionServices, tmp_path: Path) -> None:
    """One sets out every so often, and what became of each is in the run with times since its start."""
    run = Run.create(tmp_path, "probe", lab.plan, seed=1)
    clients = FreshClients(tor, onion_target(onions, "shop"))
    enough = threading.Event()
    record = fresh_recorder(run, "one")
    good: list[bool] = []

    def on_result(fetched: FreshFetch) -> None:
        record(fetched)
        good.append(fetched.ok)
        if sum(good) >= 3:
            enough.set()

    with FreshProbe(clients, on_result, every=0.3):
        assert enough.wait(60)
    run.close("passed")
    events = RunReader(run.path).events("fresh")
    served = [event for event in events if event.detail["outcome"] == "ok"]
    assert len(served) == sum(good) >= 3
    assert {event.detail["outcome"] for event in events} <= {"ok", "unfinished"}
    for event in served:
        assert event.detail["step"] == "one"
        assert event.node in tor.clients
        assert 0 < event.detail["started"] < event.detail["first_byte"] <= event.detail["last_byte"] <= event.t + 0.001


def test_an_error_of_the_listener_comes_out(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """Whatever ``on_result`` raises ends it and is raised, with nothing left running (see the fixture)."""

    def complain(fetched: FreshFetch) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        fresh_clients(tor, 8, onions.address("shop"), size=16 * 1024, seed=lab.plan.seed, on_result=complain)


def test_no_client_to_be_beside(tor: TorNetwork, onions: OnionServices) -> None:
    """A network without clients is told what it lacks."""
    with pytest.raises(TestbedError, match=r"set `tor.clients`"):
        FreshClients(tor, onion_target(onions, "shop"), nodes=[])


def test_they_are_not_root(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """A fresh client runs as the unprivileged user, marked as the lab's."""
    seen: list[tuple[int, bytes]] = []
    clients = FreshClients(tor, onion_target(onions, "shop"))
    before = set(processes(lab.id))
    thread = threading.Thread(target=clients.one)
    thread.start()
    deadline = time.monotonic() + 30
    while not seen and time.monotonic() < deadline:
        for pid in set(processes(lab.id)) - before:
            try:
                owner, environment = os.stat(f"/proc/{pid}").st_uid, Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if owner:
                seen.append((owner, environment))
    thread.join(60)
    clients.stop()
    assert seen[0][0] == 10001
    assert f"TESTBED_LAB={lab.id}".encode() in seen[0][1].split(b"\0")
