"""A network in the half of its time period in which clients fetch the *next* descriptor: where labs must not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.lab.up import up
from testbed.plan.load import load_text
from testbed.tor.bringup import bringup
from testbed.tor.network import TorNetwork
from testbed.tor.onion import starting
from testbed.tor.protocol.keys import onion_key
from testbed.tor.protocol.timeperiod import INTERVALS, TimePeriods

pytestmark = [pytest.mark.root, pytest.mark.tor]

TOPOLOGY = "name: other-half\nseed: 4\ntor: {authorities: 1, relays: 9, clients: 0}\nonions: {shop: {}}\n"


def test_instances_are_refused_there(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before anything is started. (And if it did not: our ring is tor's in this half, too.)"""

    def other_half(now: float, needed: float) -> int:
        there = [interval for interval in INTERVALS if TimePeriods(interval).left(now) < 0]
        return max(there, key=lambda interval: -now % (TimePeriods(interval).length * 60))  # it lasts longest

    monkeypatch.setattr(bringup, "choose_interval", other_half)
    _, plan = load_text(TOPOLOGY)
    lab = up(plan, hold=["tor", "onions"], runtime="process")
    tor = TorNetwork.start(lab)
    services = lab.subsystem("onions")
    with pytest.raises(TestbedError, match="clients fetch an onion service's current descriptor ended at"):
        services.start("shop")
    assert services.running("shop") == []

    monkeypatch.setattr(starting, "require_current", lambda *args, **named: None)
    (publication,) = services.start("shop")
    ring = tor.directory().ring(onion_key(4, "shop").public)
    assert not ring.clients_fetch_current
    assert len(ring.next.hsdirs) == 6
    assert set(publication.begun) == {router.fingerprint for router in ring.next.hsdirs}
    assert set(publication.others) == {router.fingerprint for router in ring.current.hsdirs}
