"""Many sites and many prefixes: how large configurations get, how long a change takes, how fast the redirector is.

The campus of the topology is grown to so many sites, each in every provider's network, and so many prefixes. A
provider's table is exchanged under load, which loses no request; then the redirector is loaded in turn with plain
redirects of nginx and (where it is installed) haproxy on the same node, which know no sites at all.

    testbed run edge_scale                                            about a minute a repeat
    testbed run edge_scale --param sites=5000 --param seconds=5s
"""

import threading
from pathlib import Path

import pytest

from testbed.edge.measure.contest import REDIRECTOR, Contest, Score
from testbed.edge.measure.scale import change_time, grown_lab, sizes
from testbed.edge.network import Edge
from testbed.measure.measure import Measure
from testbed.model.topology import Topology
from testbed.plan.types import Plan

pytestmark = pytest.mark.testbed(
    topology="campus-scale.yaml",
    fidelity=False,
    parameters={
        "sites": "1000",
        "prefixes": "2000",
        "changes": "6",
        "rounds": "4",
        "seconds": "2s",
        "connections": "64",
    },
)


def test_edge_scale(measure: Measure, testbed_plan: tuple[Topology, Plan, Path]) -> None:
    """Sizes, changes, and requests a second."""
    topology, _, path = testbed_plan
    (sites,), (prefixes,) = measure.integers("sites"), measure.integers("prefixes")
    with grown_lab(measure, topology, path, sites, prefixes) as edge:
        measure.event("edge-sizes", sites=sites, prefixes=prefixes, bytes=sizes(edge.world))
        contest = Contest(edge)
        for repeat in range(1, measure.repeats + 1):
            with measure.step(f"change-r{repeat}", experiment="edge-scale", what="change", repeat=repeat):
                _change(edge, measure, contest)
            for connection in ("kept", "new"):
                detail = {"experiment": "edge-scale", "what": connection, "repeat": repeat, "counts_only": True}
                with measure.step(f"{connection}-r{repeat}", **detail):
                    _load(measure, contest, connection)


def _change(edge: Edge, measure: Measure, contest: Contest) -> None:
    """Exchange a table again and again while users are served, each over a connection of its own.

    nginx closes connections that are kept open when it reads its configuration again; their users open others.
    """
    (changes,), (connections,) = measure.integers("changes"), measure.integers("connections")
    other = [isp.name for isp in edge.world.isps[:2]]
    scores: list[Score] = []
    load = threading.Thread(
        target=lambda: scores.append(contest.run(REDIRECTOR, measure.seconds("seconds") * 2, connections, close=True))
    )
    load.start()
    for number in range(changes):
        way = other[(number + 1) % len(other)]
        measure.event("edge-change", way=way, seconds=change_time(edge, way))
    load.join()
    assert scores, "the load ended with an error"
    assert not scores[0].wrong, f"requests were lost while tables were exchanged: {scores[0].wrong}"
    if changes % 2:
        change_time(edge, other[0])


def _load(measure: Measure, contest: Contest, connection: str) -> None:
    """Each server in turn, as often as rounds say."""
    (rounds,), (connections,) = measure.integers("rounds"), measure.integers("connections")
    for number in range(1, rounds + 1):
        for server in contest.servers:
            score = contest.run(server, measure.seconds("seconds"), connections, close=connection == "new")
            assert score.requests, f"{server} answered nothing"
            measure.event(
                "edge-load",
                server=server,
                connection=connection,
                round=number,
                requests=score.requests,
                seconds=score.seconds,
                cpu=score.cpu,
                wrong=score.wrong,
            )
