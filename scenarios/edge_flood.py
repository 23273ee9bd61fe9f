"""Filtering, which the published design left open: one provider's users flood the web server, the others go on.

Two users of one provider open requests that they never end, more of them than the server holds connections. A user of
every network fetches the page before, during and after that; without filters, and with limits for each source address
at the border routers and the server, and a ban list.

    testbed run edge_flood                                            about 50 seconds a repeat
    testbed run edge_flood --param filter=on --param hold=20s
"""

import time

import pytest

from testbed.edge.filters import running
from testbed.edge.measure.experiment import Fetched, Users
from testbed.edge.network import Edge
from testbed.errors import TestbedError
from testbed.faults.faults import Faults
from testbed.faults.slow_requests import SlowRequests
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure

pytestmark = pytest.mark.testbed(
    topology="campus-flood.yaml",
    parameters={"filter": "off,on", "count": "400", "calm": "4s", "hold": "10s", "period": "500ms", "timeout": "2s"},
)


def test_edge_flood(lab: Lab, measure: Measure, faults: Faults) -> None:
    """The flood without and with filters, as often as repeats say."""
    edge: Edge = lab.subsystem("edge")
    for repeat in range(1, measure.repeats + 1):
        for state in measure.words("filter"):
            if state not in ("on", "off"):
                raise TestbedError(f"parameter filter: {state!r} is not known", remedy="on, off")
            _flood(edge, measure, faults, state == "on", repeat)


def _flood(edge: Edge, measure: Measure, faults: Faults, filtered: bool, repeat: int) -> None:
    site, flooded = edge.world.sites[0], edge.world.isps[0]
    users = [network.clients[0].node for network in edge.world.networks]
    attackers = [client.node for client in flooded.clients[1:]]
    address, port = site.public[flooded.name]
    (count,), hold = measure.integers("count"), measure.seconds("hold")
    flood = SlowRequests.model_validate(
        {
            "nodes": attackers,
            "target": str(address),
            "port": port,
            "count": count,
            "rate": "400/s",
            "duration": f"{int(hold)}s",
        }
    )
    running.switch(edge, filtered)
    name = f"flood-{'on' if filtered else 'off'}-r{repeat}"
    detail = {"experiment": "edge-flood", "filter": filtered, "flooded": flooded.name, "repeat": repeat}
    timing = {"period": measure.seconds("period"), "timeout": measure.seconds("timeout")}
    with measure.step(name, expect_failures=True, **detail), Users(edge, measure, users, name, **timing) as visitors:
        time.sleep(measure.seconds("calm"))
        begun = time.monotonic()
        entry = faults.inject(flood)
        time.sleep(hold)
        faults.heal(entry)
        ended = time.monotonic()
        time.sleep(measure.seconds("calm"))
    bans = [ban["source"] for ban in running.bans(edge) if ban["t"] > begun]
    times = {"begun": measure.run.since_start(begun), "ended": measure.run.since_start(ended)}
    measure.event("edge-flood", flooded.name, step=name, bans=bans, **times)
    during = [fetch for fetch in visitors.seen if fetch.ended > times["begun"] and fetch.started < times["ended"]]
    _check(visitors.seen, during, flooded.name, filtered, bans)


def _check(seen: list[Fetched], during: list[Fetched], flooded: str, filtered: bool, bans: list[str]) -> None:
    """With filters nobody elsewhere notices and the flooded recover; without them the flood does what it is for."""
    failed = [fetch for fetch in during if fetch.outcome != "ok"]
    if not filtered:
        assert failed, "the flood harmed nobody: the server holds more connections than it opened"
        return
    elsewhere = [f"{fetch.network}: {fetch.outcome}" for fetch in failed if fetch.network != flooded]
    assert not elsewhere, f"users of other networks noticed the flood: {elsewhere}"
    last = [fetch.outcome for fetch in seen if fetch.network == flooded][-2:]
    assert last == ["ok", "ok"], f"users of {flooded} had not recovered: {last}"
    assert len(set(bans)) == 2, f"banned: {bans}"
