"""Mixed descriptors on a real network: every instance is reached by the descriptor of each HSDir that it is in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from publishing_world import LIMIT, NETWORK, await_true, events, fetch, kill, mark, published, reached, revive

from testbed.lab.lab import Lab
from testbed.tor.control import await_event
from testbed.tor.distribute.document import MAX_BYTES, read_descriptor
from testbed.tor.onion.published import helper_of
from testbed.tor.onion.services import OnionServices
from testbed.tor.protocol.keys import onion_key

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: hybrid-test
{NETWORK}
onions:
  shop: {{instances: 4, publish: hybrid, content: {{size: 64KiB}}}}
  many: {{instances: 8, publish: hybrid, single_onion: true, introduction_points: 4, content: {{size: 64KiB}}}}
"""


@pytest.fixture(scope="module")
def lab(shared_network: Path) -> Lab:
    """The network is up, and four instances with keys of their own."""
    return published(TOPOLOGY)


@pytest.fixture
def onions(onions: OnionServices) -> OnionServices:
    """All of them placed when a test begins."""
    await_true(lambda: helper_of(onions, "shop").status().get("complete"), "everything to be placed")
    return onions


def ask(onions: OnionServices, client: str, fingerprint: str, service: str) -> str:
    """Make a client take the descriptor of one HSDir instead of any that it has; the descriptor.

    It takes it since all have the same revision counter.
    """
    label = onions.address(service).removesuffix(".onion")
    with onions.network.control(client) as control:
        control.subscribe("HS_DESC")
        control.ask(f"HSFETCH {label} SERVER={fingerprint}")
        await_event(control, lambda event: " RECEIVED " in event and fingerprint in event, "the descriptor", LIMIT)
        return control.getinfo(f"hs/client/desc/id/{label}")


def named(onions: OnionServices) -> set[str]:
    """All instances whose introduction points some HSDir names."""
    return {name for entry in onions.hsdir_map("shop") for name in entry.instances}


def test_groups_of_two(lab: Lab, onions: OnionServices) -> None:
    """Two groups of two, with two introduction points each, no relay twice, in both of the periods' descriptors."""
    entries = onions.hsdir_map("shop")
    assert {len(entry.instances) for entry in entries} == {2}
    assert Counter(name for entry in entries for name in entry.instances) == {f"shop{n}": 3 for n in range(1, 5)}
    current, following = helper_of(onions, "shop").status()["shelves"]
    assert (current["fetched"], following["fetched"]) == (True, False)
    assert following["period"] == current["period"] + 1
    assert all(item["holds"] == item["planned"] != [] for item in following["hsdirs"])


def test_each_instance_of_each_descriptor_is_reached(lab: Lab, onions: OnionServices) -> None:
    """With one HSDir's descriptor a client gets to both of its instances, and to no other; for each of the six."""
    clients = onions.network.clients
    for entry in onions.hsdir_map("shop"):
        text = ask(onions, clients[0], entry.fingerprint, "shop")
        content = read_descriptor(text, onion_key(3, "shop").public)
        assert len(content.points) == len({point.relay for point in content.points}) == 4
        found: set[str] = set()
        for _ in range(8):
            found |= fetch(onions, clients[0], 4)
            if len(found) == 2:
                break
        assert found == set(entry.instances), entry.nickname
        assert len(entry.instances) == 2


def test_a_death_is_seen_and_the_group_goes_on(lab: Lab, onions: OnionServices) -> None:
    """Nobody is sent to the dead instance any more; it comes back into its place."""
    before = mark(lab)
    kill(lab, "shop3")
    await_true(lambda: events(lab, "distribution", before), "the others to be distributed")
    names = {"shop1", "shop2", "shop4"}
    await_true(lambda: named(onions) == names, "every HSDir to have that")
    assert set(reached(onions, 8)) <= names
    revive(lab, "shop3")
    await_true(lambda: helper_of(onions, "shop").status().get("complete"), "all to be distributed")
    assert named(onions) == names | {"shop3"}


def test_more_instances_than_hsdirs(lab: Lab, onions: OnionServices) -> None:
    """Eight single onion services in groups of four; fresh clients get to most of them, and never to none."""
    onions.stop("shop")
    onions.start("many")
    entries = onions.hsdir_map("many")
    assert {len(entry.instances) for entry in entries} == {4}
    assert Counter(name for entry in entries for name in entry.instances) == {f"many{n}": 3 for n in range(1, 9)}
    text = ask(onions, onions.network.clients[1], entries[0].fingerprint, "many")
    assert len(text) < MAX_BYTES
    points = read_descriptor(text, onion_key(3, "many").public).points
    assert len({point.relay for point in points}) == len(points) in (4, 8)
    assert len(reached(onions, 24, "many")) >= 4
