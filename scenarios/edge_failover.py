"""What do users of a redirected campus see when a part of it dies, and how soon are they sent another way?

A user of each provider fetches a page again and again while one thing after the other happens and is undone:

    link        the link to one provider goes down: its border router sees that at once
    silent      that link loses all packets, but keeps its carrier: only probes tell
    border      the border router is dead: every one of its links is down
    worker      the worker process of one redirector listener is killed
    redirector  all of that listener's nginx is killed
    rules       the border router's address translation is flushed
    cernet      the education network's link to the campus goes down: nobody is redirected who is not already

    testbed run edge_failover                                          about two minutes a repeat
    testbed run edge_failover --param faults=link,rules --param hold=5s --repeats 5
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from testbed.edge import control
from testbed.edge.measure.failover import Users
from testbed.edge.network import Edge
from testbed.errors import TestbedError
from testbed.faults.faults import Faults
from testbed.faults.link_down import LinkDown
from testbed.faults.one_way_cut import OneWayCut
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure

pytestmark = pytest.mark.testbed(
    topology="campus.yaml",
    parameters={
        "faults": "link,silent,border,worker,redirector,rules,cernet",
        "hold": "4s",
        "period": "100ms",
        "timeout": "4s",
    },
)

NOTICED = ("link", "silent", "border")
"""Faults for which users are sent another way."""


def test_edge_failover(lab: Lab, measure: Measure, faults: Faults) -> None:
    """Every fault, as often as repeats say."""
    edge: Edge = lab.subsystem("edge")
    users = [isp.clients[0].node for isp in edge.world.isps]
    for repeat in range(1, measure.repeats + 1):
        for what in measure.words("faults"):
            for isp in edge.world.isps:
                edge.await_way(isp.name, isp.name, 30)
            _trial(edge, measure, faults, users, what, repeat)


def _trial(edge: Edge, measure: Measure, faults: Faults, users: list[str], what: str, repeat: int) -> None:
    hold, isp = measure.seconds("hold"), edge.world.isps[0]
    name = f"{what}-r{repeat}"
    with (
        measure.step(name, experiment="edge-failover", fault=what, network=isp.name, repeat=repeat),
        Users(edge, measure, users, period=measure.seconds("period"), timeout=measure.seconds("timeout")) as seen,
    ):
        seen.await_fetches(3)
        measure.event("edge-fault", isp.border, fault=what, phase="begin")
        with _broken(edge, faults, what):
            until = time.monotonic() + hold
            if what in NOTICED:
                edge.await_leaving(isp.name, 30)
                seen.await_fetches(2)  # by the other way, however late it was found
            time.sleep(max(0.0, until - time.monotonic()))
            during = edge.sent_to()
            measure.event("edge-fault", isp.border, fault=what, phase="end", ways=during)
        edge.await_way(isp.name, isp.name, 30)
        seen.await_fetches(5)
    if what in NOTICED:
        assert during[isp.name] != isp.name, f"users of {isp.name} were still sent there {hold} s after `{what}`"
    assert seen.last(users[0]) == "ok", f"{users[0]} has no page after `{what}`: {seen.last(users[0])}"
    others = [user for user in users[1:] if what != "cernet"]
    bad = {user: seen.failures(user) for user in others if seen.failures(user)}
    assert not bad, f"`{what}` at {isp.name} is no matter of others, but: {bad}"


@contextmanager
def _broken(edge: Edge, faults: Faults, what: str) -> Iterator[None]:
    """The fault ``what`` while the block lasts."""
    isp, education = edge.world.isps[0], edge.world.education
    with ExitStack() as stack:
        match what:
            case "link":
                stack.enter_context(faults.active(LinkDown(link=(isp.name, isp.border))))
            case "silent":
                stack.enter_context(faults.active(OneWayCut(link=(isp.name, isp.border))))
            case "border":
                for neighbour in (isp.name, "campus"):
                    stack.enter_context(faults.active(LinkDown(link=(isp.border, neighbour))))
            case "cernet":
                stack.enter_context(faults.active(LinkDown(link=(education.name, education.border))))
            case "worker":
                master = control.master(edge.lab, isp.name).pid
                for worker in control.children(master):
                    os.kill(worker, signal.SIGKILL)
            case "redirector":
                control.master(edge.lab, isp.name).signal(signal.SIGKILL)
            case "rules":
                edge.lab.exec(isp.border, ["nft", "flush", "ruleset"], check=True)
            case _:
                raise TestbedError(f"parameter faults: {what!r} is not known", remedy="see the scenario's first lines")
        yield
