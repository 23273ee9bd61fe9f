"""An onion service behind the campus edge: what its clients and the web site's users see of the campus' links.

The instances of an onion service hang on the campus router; its clients sit in the providers' networks, as do users of
the campus' web site. Both go on while one link after the other goes down and comes back:

    calm        nothing happens
    provider    the campus' link to the first provider: its users are sent another way, onion clients notice nothing
    education   the campus' link to the education network: onion services and redirection are gone until it is back

    testbed run campus_onion                                          about 2 minutes a repeat, bring-up included
"""

import time

import pytest

from testbed.edge.measure.experiment import Users
from testbed.edge.network import Edge
from testbed.edge.plan import names
from testbed.errors import TestbedError
from testbed.faults.faults import Faults
from testbed.faults.link_down import LinkDown
from testbed.lab.lab import Lab
from testbed.measure.load import ClientLoad, LoadSummary, recorder
from testbed.measure.measure import Measure
from testbed.tor.measure.experiment import onion_target, sockets
from testbed.tor.network import TorNetwork
from testbed.tor.onion.services import OnionServices

pytestmark = pytest.mark.testbed(
    topology="campus-onion.yaml",
    parameters={"steps": "calm,provider,education", "hold": "15s", "period": "1s", "timeout": "5s"},
)


def test_campus_onion(lab: Lab, measure: Measure, faults: Faults) -> None:
    """Every step, as often as repeats say."""
    edge: Edge = lab.subsystem("edge")
    for repeat in range(1, measure.repeats + 1):
        for what in measure.words("steps"):
            _step(edge, measure, faults, what, repeat)


def _step(edge: Edge, measure: Measure, faults: Faults, what: str, repeat: int) -> None:
    cut = _cut(edge, what)
    tor: TorNetwork = edge.lab.subsystem("tor")
    onions: OnionServices = edge.lab.subsystem("onions")
    service = next(iter(onions.services))
    name, hold = f"{what}-r{repeat}", measure.seconds("hold")
    load = ClientLoad(
        sockets(tor),
        onion_target(onions, service),
        duration=hold,
        timeout=hold,
        grace=hold,
        on_result=recorder(measure.run, name),
    )
    users = [isp.clients[0].node for isp in edge.world.isps]
    timing = {"period": measure.seconds("period"), "timeout": measure.seconds("timeout")}
    with (
        measure.step(name, experiment="campus-onion", what=what, repeat=repeat, expect_failures=True),
        Users(edge, measure, users, name, **timing) as visitors,
    ):
        load.start()
        time.sleep(hold / 3)
        entry = faults.inject(cut) if cut else None
        time.sleep(hold / 3)
        if entry:
            faults.heal(entry)
        summary = load.join()
    _check(what, summary, [fetch.outcome for fetch in visitors.seen])


def _cut(edge: Edge, what: str) -> LinkDown | None:
    networks = {"calm": None, "provider": edge.world.isps[0], "education": edge.world.education}
    if what not in networks:
        raise TestbedError(f"parameter steps: {what!r} is not known", remedy=", ".join(networks))
    network = networks[what]
    return LinkDown(link=(network.name, f"{network.border}:{names.UPLINK}")) if network else None


def _check(what: str, summary: LoadSummary, web: list[str]) -> None:
    """Onion clients need the education network alone, users of the web site the providers' links as well."""
    assert summary.ok, f"no onion download came through: {dict(summary.outcomes)}"
    assert "ok" in web, "nobody saw the web site"
    if what == "provider":
        assert not summary.failed, f"onion clients noticed the provider's link: {dict(summary.outcomes)}"
    if what == "education":
        assert set(web) != {"ok"}, "redirection went on without the education network"
