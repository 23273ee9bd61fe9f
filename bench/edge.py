"""The campus edge: what redirection gains each network's users, and what the redirector costs beside plain ones.

``edge-gain``: median transfer of a page after the redirection over the same page without a mode, for the worst network,
and for each one. ``redirector-ratio``: requests for each second of processor time of the redirector with 1000 sites,
one of them asked for, over those of an nginx that redirects everything to one place, in the same run, turn by turn;
also over haproxy's where it is there. With a connection for each request, as users come, and (``-kept``) with
connections that are kept. The scenario ``edge_scale`` does the same and asks for all sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.figure import Figure
from bench.own_state import own_state
from testbed.edge.measure.compare import plan_in_mode
from testbed.edge.measure.contest import HAPROXY, NGINX, REDIRECTOR, Contest
from testbed.edge.measure.scale import grown_plan
from testbed.edge.network import Edge
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.plan.load import load_topology
from testbed.plan.types import Plan

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
CAMPUS, GROWING = TOPOLOGIES / "campus.yaml", TOPOLOGIES / "campus-scale.yaml"
VISITS = 5
ROUNDS = 7
SECONDS = 2
CONNECTIONS = 64
SITES, PREFIXES = 1000, 2000
HOST = "s500.campus.test"


def measure(name: str) -> list[Figure]:
    """The figures of a bench."""
    return gain() if name == "edge-gain" else ratio()


@contextmanager
def running(plan: Plan) -> Iterator[Lab]:
    """A lab with a state folder of its own."""
    with own_state():
        lab = up(plan)
        try:
            yield lab
        finally:
            lab.down()


def gain() -> list[Figure]:
    """``edge-gain``: the worst network first, then each."""
    topology, _ = load_topology(CAMPUS)
    seconds: dict[str, dict[str, list[float]]] = {}
    for mode in ("none", "redirect"):
        with running(plan_in_mode(topology, mode)) as lab:
            edge: Edge = lab.subsystem("edge")
            seconds[mode] = {isp.name: _visits(edge, isp.clients[0].node) for isp in edge.world.isps}
    ratios = {
        isp: tuple(after / median(seconds["none"][isp]) for after in afters)
        for isp, afters in seconds["redirect"].items()
    }
    worst = max(ratios, key=lambda isp: median(ratios[isp]))
    each = [Figure(f"edge-gain-{isp}", "of the transfer", 0.1, values) for isp, values in ratios.items()]
    return [Figure("edge-gain", "of the transfer", 0.1, ratios[worst]), *each]


def _visits(edge: Edge, client: str) -> list[float]:
    found = []
    for _ in range(VISITS):
        fetch = edge.fetch(client, edge.world.sites[0].host, timeout=30)
        if not fetch.ok or fetch.transfer is None:
            raise SystemExit(f"{client} got no page: {fetch.outcome}")
        found.append(fetch.transfer)
    return found


def ratio() -> list[Figure]:
    """``redirector-ratio``, one connection a request and with connections kept, over nginx's and over haproxy's."""
    topology, _ = load_topology(GROWING)
    rates: dict[tuple[str, bool], list[float]] = {}
    with running(grown_plan(topology, SITES, PREFIXES)) as lab:
        contest = Contest(lab.subsystem("edge"), [HOST])
        for _ in range(ROUNDS):
            for server in contest.servers:
                for kept in (False, True):
                    score = contest.run(server, SECONDS, CONNECTIONS, close=not kept)
                    if score.wrong:
                        raise SystemExit(f"{server}: {score.wrong}")
                    rates.setdefault((server, kept), []).append(score.rate_of_a_core)
    return [
        _figure(rates, other, kept) for other in (NGINX, HAPROXY) for kept in (False, True) if (other, kept) in rates
    ]


def _figure(rates: Mapping[tuple[str, bool], list[float]], other: str, kept: bool) -> Figure:
    name = "redirector-ratio" + ("-haproxy" if other == HAPROXY else "") + ("-kept" if kept else "")
    values = tuple(a / b for a, b in zip(rates[REDIRECTOR, kept], rates[other, kept], strict=True))
    return Figure(
        name, f"of {other}'s {median(rates[other, kept]):.0f} requests a second of processor time", 0.95, values
    )
