"""The distributor on a real network: placement, deaths and returns, HSDirs that fail, other publishers, alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from publishing_world import NETWORK, await_holders, await_true, events, holders, kill, mark, published, reached, revive

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.tor.balance.revision import tor_revision
from testbed.tor.directory import has_consensus
from testbed.tor.distribute.where import run_starts
from testbed.tor.node import make_node
from testbed.tor.onion.hsdirmap import default_readers
from testbed.tor.onion.published import helper_of
from testbed.tor.onion.services import OnionServices
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.keys import onion_key

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: distributor-test
{NETWORK}
onions:
  shop: {{instances: 3, publish: distributor, content: {{size: 64KiB}}}}
  plain: {{instances: 2, publish: distributor, single_onion: true, content: {{size: 64KiB}}}}
"""


@pytest.fixture(scope="module")
def lab(shared_network: Path) -> Lab:
    """The network is up; three instances are distributed."""
    return published(TOPOLOGY)


@pytest.fixture
def onions(onions: OnionServices) -> OnionServices:
    """All of them placed when a test begins."""
    await_true(lambda: complete(onions), "everything to be placed")
    return onions


def complete(onions: OnionServices) -> bool:
    """Whether the distributor has placed and fetched back everything."""
    return bool(helper_of(onions, "shop").status().get("complete"))


def settled(onions: OnionServices) -> bool:
    """Whether every HSDir has, fetched back, what is planned for it; some instances may be dead."""
    hsdirs = helper_of(onions, "shop").status()["shelves"][0]["hsdirs"]
    return all(item["verified"] and item["holds"] == item["planned"] for item in hsdirs)


def reachable(onions: OnionServices, node: str) -> bool:
    """Whether a tor listens and knows the network."""
    try:
        with onions.network.control(node) as control:
            return has_consensus(control)
    except TestbedError:
        return False


def test_as_evenly_as_possible(lab: Lab, onions: OnionServices) -> None:
    """Two HSDirs each, all with one revision counter; the introduction points are the instances' own."""
    entries = onions.hsdir_map("shop")
    assert Counter(entry.instance for entry in entries) == {"shop1": 2, "shop2": 2, "shop3": 2}
    assert len({entry.revision for entry in entries}) == 1
    ring = onions.network.directory().ring(onion_key(3, "shop").public)
    assert [entry.fingerprint for entry in entries] == [router.fingerprint for router in ring.fetched.hsdirs]
    for name in onions.running("shop"):
        assert len(onions.content(name).points) == 3
    assert set(reached(onions, 12)) <= {"shop1", "shop2", "shop3"}


def test_the_revision_is_what_tor_would_use(lab: Lab, onions: OnionServices) -> None:
    """Instances number their descriptors as ``tor_revision`` says, within the seconds that it may have taken."""
    consensus = onions.network.directory().consensus
    ring = onions.network.directory().ring(onion_key(3, "shop").public)
    signer = BlindedSigner.make(onion_key(3, "shop").expanded, ring.current.period, consensus.periods.length)
    begun, run = events(lab, "helper_started")[0]["wall"] - 20, run_starts(consensus)[0]  # tor was there before
    possible = {tor_revision(signer, second - run) for second in range(int(begun), int(time.time()) + 1)}
    assert onions.descriptor("shop2").revision in possible


def test_an_instance_dies_and_comes_back(lab: Lab, onions: OnionServices) -> None:
    """Its HSDirs go to the others at once, and every new client is served; back, it has as many as the others."""
    before = mark(lab)
    kill(lab, "shop1")
    await_true(lambda: events(lab, "distribution", before), "the others to be distributed")
    lost, placed = events(lab, "instance_lost", before)[0], events(lab, "distribution", before)[0]
    assert lost["node"] == "shop1"
    assert placed["reason"] == "instances or HSDirs changed"
    assert {name for names in placed["placed"].values() for name in names} == {"shop2", "shop3"}
    await_true(lambda: settled(onions), "that to be fetched back")
    await_holders(onions, {"shop2": 3, "shop3": 3})
    assert set(reached(onions, 8)) <= {"shop2", "shop3"}
    revive(lab, "shop1")
    await_true(lambda: complete(onions), "shop1 to be distributed again")
    assert events(lab, "control_gap", before)[0]["node"] == "shop1"
    await_holders(onions, {"shop1": 2, "shop2": 2, "shop3": 2})
    reached(onions, 6)


def test_nobody_is_left(lab: Lab, onions: OnionServices) -> None:
    """With all instances dead the HSDirs keep what they have; the first that is back gets all of them."""
    before, held = mark(lab), holders(onions)
    for name in ("shop1", "shop2", "shop3"):
        kill(lab, name)
    await_true(lambda: events(lab, "nobody_lives", before), "the distributor to see that")
    assert all(holders(onions)), "never without a descriptor"
    assert held
    revive(lab, "shop3")
    await_true(lambda: set(holders(onions)) == {"shop3"}, "shop3 to have all HSDirs")
    for name in ("shop1", "shop2"):
        revive(lab, name)
    await_true(lambda: complete(onions), "all to be distributed again")


def test_an_hsdir_dies_and_comes_back(lab: Lab, onions: OnionServices) -> None:
    """Its failures are told and tried again ever more slowly; it counts as gone until it takes a descriptor again."""
    readers = default_readers(onions.network)
    victim = next(e for e in onions.hsdir_map("shop") if e.nickname not in readers and e.nickname.startswith("relay"))
    before = mark(lab)
    kill(lab, victim.nickname)
    kill(lab, "shop2")  # so that something has to be placed
    await_true(lambda: events(lab, "hsdir_down", before), "the HSDir to be given up")
    failed = [event for event in events(lab, "upload_failed", before) if event["node"] == victim.nickname]
    assert [event["attempt"] for event in failed[:2]] == [1, 2]
    assert failed[1]["again_in"] > failed[0]["again_in"]

    def spread() -> bool:
        status = helper_of(onions, "shop").status()["shelves"][0]["hsdirs"]
        counts = Counter(name for item in status if item["nickname"] != victim.nickname for name in item["holds"])
        return counts in ({"shop1": 3, "shop3": 2}, {"shop1": 2, "shop3": 3})

    await_true(spread, "the others to hold all that is alive")
    revive(lab, victim.nickname)
    revive(lab, "shop2")
    await_true(lambda: events(lab, "hsdir_back", before), "the HSDir to be used again")
    await_true(lambda: complete(onions), "everything to be placed")
    await_holders(onions, {"shop1": 2, "shop2": 2, "shop3": 2})


def test_c19_agents_are_restarted(lab: Lab, onions: OnionServices) -> None:
    """C19: tors that upload may be restarted, both of them; the distributor works on with those that are there."""
    before = mark(lab)
    for name in default_readers(onions.network):
        kill(lab, name)
        revive(lab, name)
        await_true(lambda: reachable(onions, name), f"{name} to listen")  # noqa: B023 - awaited here
    kill(lab, "shop3")
    await_holders(onions, {"shop1": 3, "shop2": 3})
    revive(lab, "shop3")
    await_true(lambda: complete(onions), "everything to be placed")
    gaps = [event["node"] for event in events(lab, "control_gap", before)]
    assert set(default_readers(onions.network)) <= set(gaps)


def test_alone(lab: Lab, onions: OnionServices, tmp_path: Path) -> None:
    """The command does the same with nothing but control sockets and the key; it goes on from higher counters."""
    assert helper_of(onions, "shop").stop()
    (revision,) = {entry.revision for entry in onions.hsdir_map("shop")}
    assert revision is not None
    command = [sys.executable, "-m", "testbed", "distributor", "--once", "--state", str(tmp_path / "state")]
    command += ["--key", str(make_node(lab, "shop1").paths.hidden_service), "--address", onions.address("shop")]
    for name in ("shop3", "shop1"):
        command += ["--control", str(make_node(lab, name).paths.control)]
    for name in default_readers(onions.network):
        command += ["--via", str(onions.network.control_path(name))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "distribution" in done.stdout
    many = subprocess.run([*command, *command[-6:-4] * 5], capture_output=True, text=True, timeout=60, check=False)
    assert many.returncode == 1
    assert "`distributor` cannot serve 7 instances with 6 HSDirs, but 1 to 6" in many.stderr
    entries = onions.hsdir_map("shop")
    assert Counter(entry.instance for entry in entries) == {"shop3": 3, "shop1": 3}
    assert all(entry.revision is not None and entry.revision > revision for entry in entries)
    onions.stop("shop")
    onions.start("shop")
    await_holders(onions, {"shop1": 2, "shop2": 2, "shop3": 2})


def test_joining_what_is_not_known(lab: Lab, onions: OnionServices) -> None:
    """The distributor knows those that it was started with; one of them may come back as on a new machine."""
    onions.stop("shop")
    onions.start("shop", 2)
    with pytest.raises(TestbedError, match="shop3 was not among those that were started"):
        onions.join("shop", "shop3")
    kill(lab, "shop2")
    kill(lab, "shop2", "nginx")
    publication = onions.join("shop", "shop2")
    assert publication.instance == "shop2"
    assert len(publication.acknowledged()) == 3
    await_holders(onions, {"shop1": 3, "shop2": 3})


def test_single_onion_services(lab: Lab, onions: OnionServices) -> None:
    """Instances are not anonymous, and clients reach them all the same. Stopping leaves nothing of the distributor."""
    onions.start("plain")
    await_holders(onions, {"plain1": 3, "plain2": 3}, "plain")
    node = make_node(lab, "plain1")
    try:
        config = node.require().getinfo("config-text")
        assert "HiddenServiceSingleHopMode 1" in config
        circuits = node.require().getinfo("circuit-status").splitlines()
        hops = [line.split()[2].count("~") for line in circuits if "PURPOSE=HS_SERVICE_INTRO" in line]
        assert set(hops) == {1}
    finally:
        node.close()
    reached(onions, 6, "plain")
    helper = helper_of(onions, "plain")
    assert helper.process() is not None
    onions.stop("plain")
    assert helper.process() is None
    assert onions.running("plain") == []
