"""Two faults of smart DNS, and what the client's subnet in a question (EDNS, RFC 7871) mends of them.

Views by the resolver's network bring users in by their own provider. Published faults, each shown here on real name
servers with a user's whole fetch and the way that it took:

    port       an answer has no port, so of sites that share a public address all but one stay in the education network
    resolver   a user whose resolver sits in another network is sent into that one

    testbed run edge_dns_faults                                       about 25 seconds a repeat
    testbed run edge_dns_faults --param answers=resolver              without the modern answer
"""

import pytest

from testbed.edge.dns.running import tell_subnets
from testbed.edge.measure.experiment import Visit, visit
from testbed.edge.modes import smart_dns
from testbed.edge.network import Edge
from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.measure import Measure

pytestmark = pytest.mark.testbed(topology="campus-dns.yaml", parameters={"answers": "resolver,subnet", "path": "/page"})


def test_edge_dns_faults(lab: Lab, measure: Measure) -> None:
    """Every user and site, with answers by the resolver's network and by the client's."""
    edge: Edge = lab.subsystem("edge")
    for repeat in range(1, measure.repeats + 1):
        for answers in measure.words("answers"):
            if answers not in ("resolver", "subnet"):
                raise TestbedError(f"parameter answers: {answers!r} is not known", remedy="resolver, subnet")
            tell_subnets(edge, answers == "subnet")
            with measure.step(f"dns-{answers}-r{repeat}", experiment="edge-dns", answers=answers, repeat=repeat):
                visits = [
                    visit(edge, measure, client.node, site.host, measure.text("path"))
                    for client in edge.clients()
                    for site in edge.world.sites
                ]
            for one in visits:
                _check(edge, one, answers)


def _check(edge: Edge, one: Visit, answers: str) -> None:
    """The faults are there, and the modern answer mends the second and not the first."""
    client = edge.world.client(one.client)
    told = client.network if answers == "subnet" else client.resolver
    isp = edge.world.by_name[told]
    near = not isp.educational and one.host not in {site.host for site in smart_dns.unserved(edge.world, isp)}
    expected = told if near else edge.world.education.name
    assert one.outcome == "ok", f"{one.client} did not get {one.host}: {one.outcome}"
    assert one.entry == expected, f"{one.client} came to {one.host} by {one.entry} ({one.address}), not by {expected}"
