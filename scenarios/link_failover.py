"""What do clients see when a link fails, and for how long? Two paths, static routes, no routing protocol.

The client is asked for the server by ping, again and again, while one thing after the other happens and is undone:

    detour    the short link goes down: its routers see that, and the longer path takes over
    cut       the short link loses all packets one way but keeps its carrier: nobody notices
    access    the server's only link goes down
    degrade   the short link gets slower and loses packets

The report has all of it on one time axis, and every outage with how well its length is known.

    testbed run link_failover                                        about 20 seconds a repeat
    testbed run link_failover --param faults=cut,access --param hold=10s --repeats 5
"""

import time

import pytest

from testbed.errors import TestbedError
from testbed.faults.base import Fault
from testbed.faults.degrade import Degrade
from testbed.faults.faults import Faults
from testbed.faults.link_down import LinkDown
from testbed.faults.one_way_cut import OneWayCut
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure
from testbed.measure.outages import Outage

pytestmark = pytest.mark.testbed(
    topology="link-failover.yaml",
    parameters={"faults": "detour,cut,access,degrade", "hold": "3s", "period": "20ms", "delay": "50ms", "loss": "5%"},
)

TIMEOUT = 1.0
"""Seconds after which a ping counts as lost."""


def test_link_failover(lab: Lab, measure: Measure, faults: Faults) -> None:
    """Every fault, as often as repeats say."""
    measure.watch(lab, "near", ["client"])
    for repeat in range(1, measure.repeats + 1):
        for what in measure.words("faults"):
            _trial(lab, measure, faults, what, repeat)


def _trial(lab: Lab, measure: Measure, faults: Faults, what: str, repeat: int) -> None:
    fault, hold = _fault(measure, what), measure.seconds("hold")
    with (
        measure.step(f"{what}-r{repeat}", fault=what, repeat=repeat),
        measure.availability(lab, "client", "server", period=measure.seconds("period"), timeout=TIMEOUT) as watch,
    ):
        time.sleep(hold / 3)
        asked = time.monotonic()
        entry = faults.inject(fault)
        took = time.monotonic()
        way = measure.trace(lab, "client", "server", timeout=0.3, tries=1).nodes if what == "detour" else []
        time.sleep(max(0.0, took + hold - time.monotonic()))
        before = time.monotonic()
        faults.heal(entry)
        healed = time.monotonic()
        time.sleep(hold / 3)
    outages = watch.stop().outages
    if what == "detour":
        assert "spare" in way, f"packets took the way {way} while the short link was down"
    if what in ("cut", "access"):
        _assert_seen(outages, least=before - took, most=healed - asked)
    assert measure.ping(lab, "client", "server", count=20, interval=0.02).lost == 0, f"not as before after {what}"


def _fault(measure: Measure, what: str) -> Fault:
    short = ("near", "far")
    match what:
        case "detour":
            return LinkDown(link=short)
        case "cut":
            return OneWayCut(link=short)
        case "access":
            return LinkDown(link=("far", "server"))
        case "degrade":
            settings = {"link": short, "delay": measure.text("delay"), "loss": measure.text("loss")}
            return Degrade.model_validate(settings)
    raise TestbedError(f"parameter faults: {what!r} is not known", remedy="detour, cut, access, degrade")


def _assert_seen(outages: list[Outage], *, least: float, most: float) -> None:
    """The outage is there, and the range given for its length holds what the fault is known to have lasted."""
    longest = max(outages, key=lambda outage: outage.seconds, default=None)
    assert longest is not None, "no outage was seen"
    assert longest.complete, "the outage has not ended with the fault"
    assert longest.longest is not None
    assert longest.longest >= least, f"at most {longest.longest:.3f} s were out of {least:.3f} s of fault"
    assert longest.shortest <= most, f"at least {longest.shortest:.3f} s were out in {most:.3f} s of fault"
