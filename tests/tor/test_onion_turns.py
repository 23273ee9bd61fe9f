"""Instances that take turns: what the old one publishes meanwhile is put right; a new one that dies changes nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from publishing_world import NETWORK, SIZE, await_true, holders, kill

from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.pool.agents.clock import SECOND
from testbed.pool.lab.onion import Call, OnionPool
from testbed.pool.schedule.scheduler import Schedule
from testbed.tor.distribute.document import make_descriptor
from testbed.tor.distribute.handover import publishes
from testbed.tor.measure.fresh import fresh_clients
from testbed.tor.node import make_node
from testbed.tor.onion.instances import publish_again
from testbed.tor.onion.leave import take_leave
from testbed.tor.onion.readers import readers
from testbed.tor.onion.reissue import held_of
from testbed.tor.onion.services import OnionServices
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.keys import onion_key

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = f"""
name: turns
{NETWORK}
onions: {{shop: {{instances: 3, runtime: process, content: {{size: {SIZE}B}}}}}}
"""


@pytest.fixture(scope="module")
def pool(shared_network: Path) -> OnionPool:
    """Nothing falls due in it: the tests call."""
    lab = up(load_text(TOPOLOGY)[1], f"turns-{os.getpid()}", owner=os.getpid(), hold=["onions"], warm=True)
    pool = OnionPool(lab.subsystem("onions"), "shop", Schedule(None, 10**6 * SECOND))
    pool.begin()
    return pool


def served_by(lab: Lab, onions: OnionServices) -> set[str]:
    """Who serves clients that never asked before."""
    found = fresh_clients(lab.subsystem("tor"), 2, onions.address("shop"), size=SIZE, seed=lab.plan.seed)
    return {item.instance for item in found if item.ok}


def test_what_the_old_one_publishes_meanwhile_is_put_right(pool: OnionPool) -> None:
    onions, lab = pool.onions, pool.onions.lab
    turn = pool.take_over(Call(0, "bit"))
    assert (turn.leaving, turn.to) == ("shop1", "shop2")
    with make_node(lab, "shop1").require() as control:
        assert not publishes(control)
    publish_again(onions, "shop1")  # its tor starts anew, with its files, and so publishes
    assert set(holders(onions)) == {"shop1"}
    move = pool.retire(turn, overlap=0, leave=0.5, number=signal.SIGINT)
    assert move is not None
    assert len(move.repaired) == 6
    assert onions.running("shop") == ["shop2"]
    assert set(holders(onions)) == {"shop2"}
    assert served_by(lab, onions) == {"shop2"}


def test_a_new_one_that_dies_changes_nothing(pool: OnionPool) -> None:
    onions, lab = pool.onions, pool.onions.lab
    turn = pool.take_over(Call(0, "bit"))
    assert (turn.leaving, turn.to) == ("shop2", "shop3")
    kill(lab, "shop3")
    assert pool.retire(turn, overlap=30, leave=0.5, number=signal.SIGINT) is None
    assert pool.holder == "shop2"
    assert set(holders(onions)) == {"shop2"}
    assert served_by(lab, onions) == {"shop2"}


def test_the_end_of_the_one_in_service_calls_the_next(pool: OnionPool) -> None:
    onions, lab = pool.onions, pool.onions.lab
    kill(lab, "shop2")
    call = pool.await_call(until=float("inf"))
    assert call is not None
    assert call.cause == "died"
    move = pool.move(call, overlap=30, leave=30, number=signal.SIGINT)  # nobody is there to wait for
    assert move is not None
    assert (move.turn.leaving, pool.holder) == ("shop2", move.turn.to)
    assert served_by(lab, onions) == {pool.holder}


def test_who_takes_leave_has_no_introduction_points(pool: OnionPool) -> None:
    control = make_node(pool.onions.lab, pool.holder).require()
    with control:
        await_true(lambda: "HSSI_ESTABLISHED" in control.getinfo("circuit-status"), "introduction points")
        assert take_leave(control, 0.1) >= 3
        assert not publishes(control)


def test_a_start_puts_right_what_hsdirs_refuse(pool: OnionPool) -> None:
    """Such as after a new consensus, when all counters are lower than before."""
    onions = pool.onions
    directory, key = onions.network.directory(), onion_key(onions.lab.plan.seed, "shop")
    ring, content = directory.ring(key.public).fetched, onions.content(pool.holder)
    signer = BlindedSigner.make(key.expanded, ring.period, directory.consensus.periods.length)
    far = content.revision + 2**32
    made = make_descriptor(
        content.header, content.points, signer=signer, identity=key.public, revision=far, now=time.time()
    )
    with readers(onions.network, onions.lab.folder / "publish" / "test") as agents:
        refused = agents.post(
            onions.address("shop").removesuffix(".onion"), {hsdir.fingerprint: made.text for hsdir in ring.hsdirs}
        )
    assert set(refused.values()) == {""}
    onions.stop("shop")
    (publication,) = onions.start("shop", 1)
    assert not publication.acknowledged()
    assert [entry.revision for entry in held_of(onions, "shop", "shop1") if entry.instance] == [far + 1] * 6
    assert served_by(onions.lab, onions) == {"shop1"}
