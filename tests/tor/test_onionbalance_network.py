"""The real OnionBalance on a real network: its HSDirs are tor's, instances are reached, and C19."""

from __future__ import annotations

from pathlib import Path

import pytest
from publishing_world import NETWORK, await_true, events, holders, kill, mark, published, reached

from testbed.lab.lab import Lab
from testbed.tor.balance.supervisor import LOG
from testbed.tor.node import make_node
from testbed.tor.onion.published import front, helper_of, spawn_front
from testbed.tor.onion.services import OnionServices

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: balance-test
{NETWORK}
onions:
  shop: {{instances: 3, publish: onionbalance, stagger: 500ms, late_by: 3s, content: {{size: 64KiB}}}}
  plain: {{instances: 2, single_onion: true, stagger: 0s, late_by: 1s, content: {{size: 64KiB}}}}
"""
NAMES = {"shop1", "shop2", "shop3"}


@pytest.fixture(scope="module")
def lab(shared_network: Path) -> Lab:
    """The network is up, and three instances behind an OnionBalance."""
    return published(TOPOLOGY)


def one_revision(onions: OnionServices) -> int:
    """The counter of the one descriptor that all HSDirs hold, as soon as they do: it may just be replaced."""
    found: set[int | None] = set()

    def one() -> bool:
        entries = onions.hsdir_map("shop")
        found.clear()
        found.update(entry.revision for entry in entries)
        return len(found) == 1 and all(set(entry.instances) == NAMES for entry in entries)

    await_true(one, "all HSDirs to hold one descriptor with introduction points of all")
    (revision,) = found
    assert revision is not None
    return revision


def test_one_descriptor_everywhere(lab: Lab, onions: OnionServices) -> None:
    """Every HSDir that tor asks has it, with introduction points of all three; OnionBalance knows every relay."""
    assert one_revision(onions) > 0
    log = (helper_of(onions, "shop").folder / LOG).read_text()
    assert "Initialized hash ring of size 12" in log
    assert "Traceback" not in log


def test_all_are_reached(lab: Lab, onions: OnionServices) -> None:
    """Fresh clients are served, by more than one of the instances."""
    got = reached(onions, 16)
    assert set(got) <= NAMES
    assert len(got) >= 2


def test_c19_tor_is_restarted(lab: Lab, onions: OnionServices) -> None:
    """C19: with its tor OnionBalance would stay dead; it is begun anew, the gap is an event, and it publishes again."""
    before = mark(lab)
    revision = one_revision(onions)
    node = front(onions, "shop").name
    kill(lab, node, "front-shop")
    await_true(lambda: events(lab, "control_lost", before), "that to be seen")
    spawn_front(onions, "shop")
    await_true(lambda: events(lab, "balancer_started", before), "OnionBalance to be begun again")
    gap = events(lab, "control_gap", before)[0]
    assert gap["seconds"] > 0
    assert gap["service"] == "shop"
    await_true(
        lambda: all((entry.revision or 0) > revision for entry in onions.hsdir_map("shop")), "it to publish again"
    )
    assert one_revision(onions) > revision
    assert set(reached(onions, 4)) <= NAMES


def test_an_instance_comes_back_as_a_new_machine(lab: Lab, onions: OnionServices) -> None:
    """It publishes by itself, and OnionBalance finds its new introduction points."""
    for program in ("tor", "nginx"):
        kill(lab, "shop2", program)
    publication = onions.join("shop", "shop2")
    assert publication.instance == "shop2"
    await_true(
        lambda: all(set(entry.instances) == NAMES for entry in onions.hsdir_map("shop")), "OnionBalance to find it"
    )


def test_the_next_way_to_publish_is_not_refused(lab: Lab, onions: OnionServices) -> None:
    """Its revision counters are tor's own: instances that publish by themselves come after it."""
    onions.stop("shop")
    assert helper_of(onions, "shop").process() is None
    assert not any(process.alive() for process in lab.processes() if process.service == "front-shop")
    onions.start("shop", 2, "late")
    (holder,) = set(holders(onions))  # the late one, if it was not faster than the other
    assert holder in {"shop1", "shop2"}


@pytest.mark.parametrize("publish", ["simultaneous", "late", "onionbalance"])
def test_single_onion_services(lab: Lab, onions: OnionServices, publish: str) -> None:
    """Instances with circuits of one hop, in the ways that have no distributor (see there for the others)."""
    onions.start("plain", publish=publish)
    try:
        node = make_node(lab, "plain1")
        try:
            assert "HiddenServiceSingleHopMode 1" in node.require().getinfo("config-text")
            circuits = node.require().getinfo("circuit-status").splitlines()
            assert {line.split()[2].count("~") for line in circuits if "PURPOSE=HS_SERVICE_INTRO" in line} == {1}
        finally:
            node.close()
        assert set(reached(onions, 3, "plain")) <= {"plain1", "plain2"}
    finally:
        onions.stop("plain")
