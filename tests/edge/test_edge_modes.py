"""Smart DNS, mirrors and BGP with the same users and measurements as redirection: who comes in where."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.edge.bgp import control
from testbed.edge.dns.running import tell_subnets
from testbed.edge.filters import packets, running
from testbed.edge.measure.experiment import entry_of
from testbed.edge.modes import bgp, smart_dns
from testbed.edge.network import Edge
from testbed.edge.plan import names
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.plan.load import load_text

pytestmark = pytest.mark.root

HOST, SECOND = "www.campus.test", "lib.campus.test"
TOPOLOGY = """
name: {name}
edge:
  mode: {mode}
  dns: {{ttl: 0s}}
  isps:
    telecom: {{prefixes: [61.128.0.0/16], public: 61.128.200.2, delay: 1ms}}
    unicom: {{prefixes: [123.112.0.0/16], public: 123.112.200.2, delay: 1ms, clients: [{{}}, {{resolver: telecom}}]}}
  exchange: {{delay: 20ms}}
  sites: {{www.campus.test: {{}}, lib.campus.test: {{}}}}
  content: {{page: 20KiB, bulk: 100KiB}}
"""


def edge_of(mode: str) -> tuple[Lab, Edge]:
    _, plan = load_text(TOPOLOGY.format(name=f"modes-{mode}", mode=mode))
    lab = up(plan)
    edge: Edge = lab.subsystem("edge")
    return lab, edge


def entries(edge: Edge, host: str = HOST) -> dict[str, str]:
    """By user the network by which most of a page came in, after its last request."""
    found = {}
    for client in edge.clients():
        fetch = edge.fetch(client.node, host)
        assert fetch.ok, (client.node, fetch.outcome)
        found[client.node] = entry_of(edge, edge.ways(client.node, host)[-1])
    return found


def test_smart_dns(state: Path) -> None:
    """Both published faults, and what the client's subnet in a question mends of them."""
    lab, edge = edge_of("smart-dns")
    near = {"telecom-1": "telecom", "unicom-1": "unicom", "unicom-2": "telecom", "cernet-1": "cernet"}
    assert entries(edge) == near
    assert {site.host for isp in edge.world.isps for site in smart_dns.unserved(edge.world, isp)} == {SECOND}
    assert set(entries(edge, SECOND).values()) == {"cernet"}
    tell_subnets(edge, True)
    assert entries(edge) == near | {"unicom-2": "unicom"}
    assert set(entries(edge, SECOND).values()) == {"cernet"}
    fetch, links = edge.measure(lambda: edge.fetch("unicom-1", HOST, "/bulk"))
    assert fetch.bytes == 100 * 1024
    assert edge.exchange_bytes(links) < 5_000, "only names go over the exchange"
    resolver = lab.services("unicom-dns")["resolver"][0]
    resolver.signal(signal.SIGKILL)
    resolver.wait_gone(5)
    assert edge.fetch("unicom-1", HOST).outcome == "no-name"


def test_mirrors(state: Path) -> None:
    """Mirrors serve every site by its name, and users with a resolver elsewhere get the mirror there."""
    lab, edge = edge_of("cdn")
    assert entries(edge, SECOND) == {
        "telecom-1": "telecom",
        "unicom-1": "unicom",
        "unicom-2": "telecom",
        "cernet-1": "cernet",
    }
    assert edge.fetch("unicom-1", HOST).hops[0].headers["x-server"] == names.mirror("unicom")
    log = lab.node_folder("web1") / "access.log"
    assert '"client":"123.' not in log.read_text()


def test_bgp(state: Path) -> None:
    """Everybody comes in by the own provider, and by another one while the link to it is down."""
    lab, edge = edge_of("bgp")
    own = {client.node: client.network for client in edge.clients()}
    assert entries(edge) == own
    sockets = bgp.sockets(lab, edge.world)
    address = str(edge.site(HOST).address)
    assert control.routes_via(sockets["telecom"], address)[0] == "to_border_telecom"
    lab.exec("border-telecom", ["ip", "link", "set", names.UPLINK, "down"], check=True)
    await_entry(edge, "telecom-1", lambda entry: entry in ("unicom", "cernet"))
    assert edge.fetch("unicom-1", HOST).ok
    lab.exec("border-telecom", ["ip", "link", "set", names.UPLINK, "up"], check=True)
    control.await_sessions(sockets)
    await_entry(edge, "telecom-1", lambda entry: entry == "telecom")


def await_entry(edge: Edge, client: str, wanted: Any, limit: float = 20.0) -> None:
    deadline = time.monotonic() + limit
    while True:
        seen = entry_of(edge, edge.ways(client, HOST)[-1]) if edge.fetch(client, HOST, timeout=2).ok else "nothing"
        if wanted(seen):
            return
        assert time.monotonic() < deadline, f"{client} comes in by {seen}"


def test_filters_are_no_hindrance(state: Path) -> None:
    """Users are served through limits and SYN proxies, as redirected and as from the education network."""
    topology = yaml.safe_load(TOPOLOGY.format(name="modes-filter", mode="redirect"))
    topology["edge"]["filter"] = {"syn_proxy": True}
    _, plan = load_text(yaml.safe_dump(topology, sort_keys=False))
    lab = up(plan)
    edge: Edge = lab.subsystem("edge")
    assert entries(edge) == {
        "telecom-1": "telecom",
        "unicom-1": "unicom",
        "unicom-2": "unicom",
        "cernet-1": "cernet",
    }
    fetch = edge.fetch("telecom-1", HOST, "/bulk")
    assert (fetch.outcome, fetch.redirected, fetch.bytes) == ("ok", True, 100 * 1024)
    chain = ["nft", "list", "chain", "ip", packets.TABLE, "cookies"]
    assert "synproxy" in lab.exec("border-telecom", chain, check=True).stdout
    log = (lab.node_folder("web1") / "access.log").read_text()
    assert f'"client":"{lab.plan.address("telecom-1")}"' in log, "the server sees who it is"
    running.switch(edge, False)
    assert edge.fetch("telecom-1", HOST).ok
    running.switch(edge, True)
    assert edge.fetch("telecom-1", HOST).ok
