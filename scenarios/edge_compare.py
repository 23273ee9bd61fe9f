"""The same users and the same sites in every mode: how long a page and a bulk download take, and by which way.

For each mode a lab of its own, all from one topology. Published (DOI 10.3969/j.issn.1007-1423.2015.28.010): with 10 to
50 ms inside a network and 200 to 500 ms between networks, the delay of the transfer after the redirection is below a
tenth of what it was.

    testbed run edge_compare                                           about 80 seconds a repeat
    testbed run edge_compare --param modes=none,redirect --repeats 5
"""

from pathlib import Path

import pytest

from testbed.edge.measure.compare import compared_lab, visit
from testbed.edge.network import Edge
from testbed.measure.measure import Measure
from testbed.model.topology import Topology
from testbed.plan.types import Plan

pytestmark = pytest.mark.testbed(
    topology="campus.yaml",
    parameters={"modes": "none,redirect,smart-dns,bgp,cdn", "paths": "/page,/bulk", "timeout": "60s"},
)


def test_edge_compare(measure: Measure, testbed_plan: tuple[Topology, Plan, Path]) -> None:
    """Every user fetches every path of the first site, alone."""
    for mode in measure.words("modes"):
        with compared_lab(measure, testbed_plan, mode) as edge:
            host = edge.world.sites[0].host
            for repeat in range(1, measure.repeats + 1):
                with measure.step(f"{mode}-r{repeat}", experiment="edge-compare", mode=mode, repeat=repeat):
                    for client in edge.clients():
                        for path in measure.words("paths"):
                            visit(edge, measure, client, host, path, timeout=measure.seconds("timeout"))
            if mode == "redirect":
                _assert_near(edge, host)


def _assert_near(edge: Edge, host: str) -> None:
    """Users of providers were sent to their own network, and those of the education network nowhere."""
    for client in edge.clients():
        fetch = edge.fetch(client.node, host)
        assert fetch.ok, f"{client.node} did not get {host}: {fetch.outcome}"
        network = edge.world.by_name[client.network]
        addresses = {str(address) for address in network.publics}
        sent = fetch.place.rpartition(":")[0] or fetch.place
        assert network.educational != (sent in addresses), f"{client.node} was sent to {fetch.place}"
