"""One real network of three authorities, eight relays and two clients, and onion services on it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.up import attach, up
from testbed.measure.fetch import Download
from testbed.measure.load import run_load
from testbed.plan.load import load_text
from testbed.runtime.base import UNPRIVILEGED_ID
from testbed.tor.control import Control, await_event
from testbed.tor.network import TorNetwork
from testbed.tor.onion.services import OnionServices
from testbed.tor.protocol.hsdir import parse_microdescriptors
from testbed.tor.protocol.keys import onion_address, onion_key, relay_key
from testbed.tor.torrc import Paths

pytestmark = [pytest.mark.root, pytest.mark.tor]

SIZE = 128 * 1024
TOPOLOGY = """
name: onion-test
seed: 5
tor: {authorities: 3, relays: 8, clients: 2, torrc: {MaxCircuitDirtiness: "700"}}
onions:
  shop: {instances: 3, stagger: 1500ms, content: {size: 128KiB}}
  idle: {instances: 1}
"""


class Stages:
    """A progress display that remembers."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[int, int]]] = {}

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Note down a state."""
        self.seen.setdefault(stage, []).append((done, total))


@pytest.fixture(scope="module")
def stages() -> Stages:
    """What the bring-up of the module's lab reported."""
    return Stages()


@pytest.fixture(scope="module")
def lab(module_state: Path, stages: Stages) -> Iterator[Lab]:
    """The network is up; the instances are not started."""
    _, plan = load_text(TOPOLOGY)
    lab = up(plan, hold=["onions"], progress=stages)
    yield lab
    lab.down()


@pytest.fixture
def onions(onions: OnionServices) -> Iterator[OnionServices]:
    """Of which none runs before the test or after it."""
    yield onions
    onions.stop("shop")


def fetch(lab: Lab, client: str) -> str:
    """Fetch the file through a client, verified byte by byte; the instance that served it."""
    tor, onions = lab.subsystem("tor"), lab.subsystem("onions")
    downloads: list[Download] = []
    run_load(
        {client: tor.socks_path(client)},
        onions.address("shop"),
        80,
        "/file",
        size=SIZE,
        seed=lab.plan.seed,
        count=1,
        on_result=downloads.append,
    )
    assert [download.outcome for download in downloads] == ["ok"]
    return downloads[0].instance


def holders(onions: OnionServices) -> dict[str, str]:
    """Instance by HSDir, as read back from the HSDirs."""
    return {entry.nickname: entry.instance for entry in onions.hsdir_map("shop")}


def test_stages_are_told_with_counts(lab: Lab, stages: Stages) -> None:
    """Every stage ends complete, and the slow ones count up."""
    for stage, total in (("authorities", 3), ("descriptors", 11), ("consensus", 3), ("relays ready", 11)):
        assert stages.seen[stage][-1] == (total, total), stage
    assert stages.seen["clients ready"][-1] == (2, 2)
    counts = [done for done, _ in stages.seen["descriptors"]]
    assert counts == sorted(counts)
    events = [json.loads(line) for line in (lab.folder / "events.jsonl").read_text().splitlines()]
    assert [event["stage"] for event in events if event["kind"] == "stage"] == ["descriptors", "consensus", "ready"]


def test_the_consensus_is_as_planned(lab: Lab, tor: TorNetwork) -> None:
    """All relays in it, six responsible HSDirs, and a time period in whose right half the lab will stay."""
    consensus = tor.directory().consensus
    assert {router.nickname for router in consensus.routers} == {*tor.authorities, *tor.relays}
    assert all({"HSDir", "Running", "Guard"} <= router.flags for router in consensus.routers)
    assert consensus.params["hsdir_spread_store"] == 3
    assert consensus.periods.clients_fetch_current(consensus.valid_after)
    assert consensus.periods.left(time.time()) > 2.9 * 3600
    assert tor.authorities == ["auth1", "auth2", "auth3"]
    for authority in tor.authorities:
        with tor.control(authority) as control:
            assert control.getinfo("consensus/valid-after") == time.strftime(
                "%Y-%m-%d %H:%M:%S", time.gmtime(consensus.valid_after)
            ), "all authorities publish one consensus"


def test_relays_have_the_identities_of_the_seed(lab: Lab, tor: TorNetwork) -> None:
    """So their places on the hash ring are the same in every run."""
    directory = tor.directory()
    identities = parse_microdescriptors(directory.microdescriptors)
    for router in directory.consensus.routers:
        assert identities[router.microdescriptor] == relay_key(5, router.nickname).public


def test_nothing_runs_as_root(lab: Lab, onions: OnionServices) -> None:
    """tor and nginx have the unprivileged user and group, no capabilities, and no way to get any."""
    onions.start("shop", 1)
    processes = [process for process in lab.processes() if process.alive()]
    assert Counter(process.service for process in processes) == {"tor": 14, "nginx": 1}
    for process in processes:
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert status["Uid"].split() == [str(UNPRIVILEGED_ID)] * 4, process
        assert status["Gid"].split() == [str(UNPRIVILEGED_ID)] * 4, process
        assert int(status["CapEff"], 16) == 0, process
        assert status["NoNewPrivs"] == "1", process


def test_c18_ready_means_that_clients_can_fetch(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """C18: when ``start`` returns, every responsible HSDir has the descriptor, and the first fetch works.

    The HSDirs that tor uploads to are those of our ring, for both descriptors, and tor has the address of the seed.
    """
    (publication,) = onions.start("shop", 1)
    hostname = (Paths(lab.node_folder("shop1")).hidden_service / "hostname").read_text().strip()
    assert hostname == onions.address("shop") == onion_address(onion_key(5, "shop").public)
    ring = tor.directory().ring(onion_key(5, "shop").public)
    assert set(publication.begun) == {router.fingerprint for router in ring.current.hsdirs}
    assert set(publication.others) == {router.fingerprint for router in ring.next.hsdirs}
    assert set(publication.begun.values()) == set(publication.others.values()) == {1}
    assert len(ring.fetched.hsdirs) == 6
    assert publication.acknowledged() <= set(publication.begun)
    assert holders(onions) == {router.nickname: "shop1" for router in ring.fetched.hsdirs}
    for client in tor.clients:
        assert fetch(lab, client) == "shop1"


def test_naive_the_last_instance_has_all_hsdirs(lab: Lab, onions: OnionServices) -> None:
    """Each publishes by itself; the descriptor with the highest counter replaces the others' everywhere.

    That is the last one's, unless one that was started before it was so slow with its introduction circuits that it
    published later. An earlier one may be refused here and there: tor numbers a descriptor when it begins to upload it,
    and one that takes longer to arrive than the next instance takes to publish finds a higher counter. (So it was each
    time when the first tor was stopped for three seconds just then. It had not published a second time: it had begun
    one upload to each HSDir, and a later descriptor would have had a counter above all others, and not been refused.)
    """
    begun = {item.instance: item for item in onions.start("shop", 3, "naive")}
    assert list(begun) == ["shop1", "shop2", "shop3"]
    revisions = {name: onions.descriptor(name).revision for name in begun}
    last = {name for name, revision in revisions.items() if revision == max(revisions.values())}
    entries = onions.hsdir_map("shop")
    assert {entry.revision for entry in entries} == {max(revisions.values())}
    assert {entry.instance for entry in entries} <= last
    for name in last if len(last) == 1 else ():
        assert "UPLOAD_REJECTED" not in begun[name].refused().values()
    onions.forget_descriptors()
    assert fetch(lab, "client1") in last


def test_simultaneous_instances_share_a_counter(lab: Lab, onions: OnionServices) -> None:
    """Released together they publish with one revision counter, so each HSDir takes whose descriptor comes first."""
    for attempt in range(4):  # on a busy machine one of them may need a second more, and then has the higher counter
        if attempt:
            onions.stop("shop")
        publications = {item.instance: item for item in onions.start("shop", 3, "simultaneous")}
        revisions = {onions.descriptor(name).revision for name in publications}
        if len(revisions) == 1:
            break
    entries = onions.hsdir_map("shop")
    assert {entry.revision for entry in entries} == {max(revisions)}
    if len(revisions) > 1:
        return  # too busy: with the highest counter an instance has all HSDirs, as of naive copies
    for entry in entries:
        assert entry.instance in publications
        assert entry.fingerprint not in publications[entry.instance].refused()
        for name, publication in publications.items():
            if name != entry.instance:
                assert entry.fingerprint not in publication.acknowledged()
    refused = sum(len(publication.refused()) for publication in publications.values())
    assert refused > 0, "ties are refused"


def test_hsdirs_of_a_service_that_never_published(onions: OnionServices) -> None:
    """They answer that they hold nothing."""
    entries = onions.hsdir_map("idle")
    assert len(entries) == 6
    assert {(entry.instance, entry.revision) for entry in entries} == {("", None)}


def test_clients_forget(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """A client has the descriptor that it was given; after forgetting it has none, asks again and is served."""
    onions.start("shop", 1)
    label = onions.address("shop").removesuffix(".onion")
    with tor.control("client1") as control:
        control.subscribe("HS_DESC")
        control.ask(f"HSFETCH {label}")
        await_event(control, lambda event: f" RECEIVED {label} " in f" {event} ", "the descriptor", 60)
        assert "revision-counter" in control.getinfo(f"hs/client/desc/id/{label}")
    onions.forget_descriptors()
    with tor.control("client1") as control, pytest.raises(TestbedError, match="client1"):
        control.getinfo(f"hs/client/desc/id/{label}")
    onions.forget_descriptors()  # nobody has anything to forget
    assert fetch(lab, "client1") == "shop1"


def test_each_start_is_that_of_a_new_machine(lab: Lab, onions: OnionServices) -> None:
    """Stopping leaves no process; the next start has another descriptor key and none of the files of the last."""
    onions.start("shop", 1)
    first = onions.descriptor("shop1")
    data = Paths(lab.node_folder("shop1")).data
    (data / "left-behind").write_text("x")
    onions.stop("shop")
    assert onions.running("shop") == []
    assert not any(process.alive() for process in lab.processes() if process.node == "shop1")
    onions.start("shop", 1)
    assert onions.descriptor("shop1").signing_key != first.signing_key
    assert not (data / "left-behind").exists()
    assert set(holders(onions).values()) == {"shop1"}


def test_another_process_can_go_on(lab: Lab, onions: OnionServices) -> None:
    """A handle made from the lab's state alone sees, maps and stops what another one started."""
    onions.start("shop", 1)
    other = attach(lab.name).subsystem("onions")
    assert other.running("shop") == ["shop1"]
    assert set(holders(other).values()) == {"shop1"}
    other.stop("shop")
    assert onions.running("shop") == []
    assert set(holders(onions).values()) == {"shop1"}, "HSDirs keep descriptors of instances that are gone"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda onions: onions.start("shop", 4), r"4 instances of 'shop' cannot be started; the topology has 3"),
        (lambda onions: onions.start("shop", 0), r"0 instances"),
        (lambda onions: onions.start("shop", 1, "later"), r"'later' is no way to publish"),
        (lambda onions: onions.start("shap"), r"no onion service 'shap'\n  services: shop, idle"),
        (lambda onions: onions.address("shap"), r"no onion service 'shap'"),
        (lambda onions: onions.network.socks_path("client9"), r"'client9' is no node of the Tor network"),
    ],
)
def test_mistakes_are_told(onions: OnionServices, call, message: str) -> None:  # type: ignore[no-untyped-def]
    """What cannot be done is refused before anything is started."""
    with pytest.raises(TestbedError, match=message):
        call(onions)
    assert onions.running("shop") == []


def test_starting_twice_is_refused(lab: Lab, tor: TorNetwork, onions: OnionServices) -> None:
    """What runs already is named, and goes on running. (Options of ``tor.torrc`` are in force at every node.)"""
    onions.start("shop", 1)
    for path in (tor.control_path("relay1"), tor.control_path("client1"), Paths(lab.node_folder("shop1")).control):
        with Control("x", path) as control:
            assert "MaxCircuitDirtiness 700" in control.getinfo("config-text")
    with pytest.raises(TestbedError, match="shop1 run already"):
        onions.start("shop", 2)
    assert onions.running("shop") == ["shop1"]


def test_an_instance_that_dies_is_told(lab: Lab, onions: OnionServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tor that ends while its descriptor is awaited is an error at once, and leaves nothing running."""

    def kill(moment: float, kind: str, node: str, detail: dict[str, object]) -> None:
        if kind == "onion_started":
            (process,) = [
                item for item in lab.processes() if item.node == node and item.service == "tor" and item.alive()
            ]
            os.kill(process.pid, signal.SIGKILL)

    lab.listeners.append(kill)
    try:
        with pytest.raises(TestbedError, match="shop1: tor ended by signal 9"):
            onions.start("shop", 1)
        assert onions.running("shop") == []
    finally:
        lab.listeners.remove(kill)


def test_no_relay_outweighs_another(tor: TorNetwork) -> None:
    """After all that they have carried, relays still say that it was nothing; so they weigh alike in any consensus."""
    weights = re.findall(r"^w (.*)$", tor.directory().consensus_text, re.MULTILINE)
    assert Counter(weights) == {"Bandwidth=0 Unmeasured=1": 11}
    for name in (*tor.authorities, *tor.relays):
        with tor.control(name) as control:
            descriptor = control.getinfo("desc/name/" + name)
        assert re.findall(r"^bandwidth \d+ \d+ (\d+)$", descriptor, re.MULTILINE) == ["0"], name
