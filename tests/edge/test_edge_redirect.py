"""Modes none and redirect on real routers, nginx and connection tracking; what happens when parts of it die."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from edge_world import ask, campus, edge_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from waiting import await_true

from testbed.edge import control
from testbed.edge.measure.fetch import Memory
from testbed.edge.network import WATCH, Edge
from testbed.edge.plan import names
from testbed.faults.base import Fault
from testbed.faults.faults import Faults
from testbed.faults.link_down import LinkDown
from testbed.faults.one_way_cut import OneWayCut
from testbed.faults.pause import Pause
from testbed.lab.lab import Lab

pytestmark = pytest.mark.root
HOST = "www.campus.test"
EXCHANGE = {"delay": "40ms", "rate": "50mbit"}


@pytest.fixture(scope="module")
def lab(module_state: Path) -> Lab:
    """The campus with shorter ways between networks."""
    return campus("edge-redirect", exchange=EXCHANGE, content={"page": "20KiB", "bulk": "300KiB"})


@pytest.fixture(scope="module")
def edge(lab: Lab) -> Edge:
    return edge_of(lab)


def events(lab: Lab, what: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (lab.folder / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "edge" and line["what"] == what]


def test_everybody_is_sent_to_his_own_network(lab: Lab, edge: Edge) -> None:
    for isp in edge.world.isps:
        fetch = edge.fetch(isp.clients[0].node, HOST, "/page?a=1&b=%2e%2e")
        assert (fetch.outcome, fetch.place, fetch.bytes) == ("ok", f"{isp.publics[0]}:8001", 20480)
        assert [hop.status for hop in fetch.hops] == [302, 200]
    log = [json.loads(line) for line in (lab.node_folder("web1") / "access.log").read_text().splitlines()]
    assert [line["client"] for line in log] == [str(isp.clients[0].own.ip) for isp in edge.world.isps]
    assert {line["uri"] for line in log} == {"/page?a=1&b=%2e%2e"}
    inside_ = edge.fetch("cernet-1", HOST)
    assert (inside_.ok, inside_.redirected) == (True, False)
    assert edge.fetch("telecom-1", "mail.campus.test").place == "61.128.200.3"


def test_the_bulk_does_not_cross_the_exchange(edge: Edge) -> None:
    redirect, transfer = edge.ways("telecom-1", HOST, "/bulk")
    assert redirect == ["telecom-1", "telecom", "cernet", "border-cernet", "inner", "redirector"]
    assert transfer == ["telecom-1", "telecom", "border-telecom", "campus", "web1"]
    fetch, links = edge.measure(lambda: edge.fetch("telecom-1", HOST, "/bulk"))
    assert fetch.bytes == 300 * 1024
    assert 500 < edge.exchange_bytes(links) < 20_000


def test_answers_leave_by_the_border_that_the_request_came_in_by(edge: Edge) -> None:
    """Also where a user asks at another network's address."""
    unicom = edge.world.by_name["unicom"]
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{size_download}"]
    url = f"http://{unicom.publics[0]}:8001/bulk"
    done, links = edge.measure(lambda: edge.lab.exec("telecom-1", [*command, url], check=True).stdout)
    assert done == f"200 {300 * 1024}"
    by_pair = {frozenset((link.a, link.b)): link.total for link in links}
    assert by_pair[frozenset(("border-unicom", "campus"))] > 300 * 1024
    assert by_pair[frozenset(("border-cernet", "campus"))] < 10_000


def test_a_real_browser_follows(edge: Edge) -> None:
    """Curl as the user's program."""
    address = edge.site(HOST).address
    done = edge.lab.exec(
        "mobile-1",
        ["curl", "-sL", "--resolve", f"{HOST}:80:{address}", f"http://{HOST}/page", "-o", "/dev/null", "-w",
         "%{http_code} %{num_redirects} %{size_download} %{remote_ip}"],
        check=True,
    )  # fmt: skip
    assert done.stdout == "200 1 20480 111.0.200.2"


def request(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode("latin-1")


PLACE = "http://61.128.200.2:8001"
EXACT: list[tuple[bytes, int, str]] = [
    (request("GET /a?b=c HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}/a?b=c"),
    (request("GET / HTTP/1.0", f"Host: {HOST}"), 302, f"{PLACE}/"),
    (request("HEAD /x HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}/x"),
    (request("GET /x HTTP/1.1", "Host: WWW.Campus.TEST."), 302, f"{PLACE}/x"),
    (request("GET /x HTTP/1.1", f"Host: {HOST}:80"), 302, f"{PLACE}/x"),
    (request(f"GET http://{HOST}/x?y HTTP/1.1", "Host: evil.test"), 302, f"{PLACE}/x?y"),
    (request(f"GET http://{HOST} HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}/"),
    (request(f"GET http://{HOST}?q HTTP/1.1", f"Host: {HOST}"), 307, f"{PLACE}/?q"),
    (request("GET //evil.test/x HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}//evil.test/x"),
    (request("GET /../../x HTTP/1.1", f"Host: {HOST}"), 400, ""),
    (request("GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}/%0d%0aSet-Cookie:%20a=b"),
    (request("GET /\\evil.test HTTP/1.1", f"Host: {HOST}"), 302, f"{PLACE}/\\evil.test"),
    (request("POST /form HTTP/1.1", f"Host: {HOST}", "Content-Length: 3") + b"a=b", 307, f"{PLACE}/form"),
    (request("PUT /form HTTP/1.1", f"Host: {HOST}", "Content-Length: 99999999"), 307, f"{PLACE}/form"),
    (request("DELETE /form HTTP/1.1", f"Host: {HOST}"), 307, f"{PLACE}/form"),
    (request("GET / HTTP/1.1", "Host: evil.test"), 421, ""),
    (request("GET / HTTP/1.1", f"Host: {HOST}.evil.test"), 421, ""),
    (request("GET / HTTP/1.1", f"Host: evil.test/{HOST}"), 400, ""),
    (request("GET / HTTP/1.1", f"Host: {HOST}@evil.test"), 421, ""),
    (request("GET / HTTP/1.1", "Host: [2001:db8::1]:80"), 421, ""),
    (request("GET / HTTP/1.1", "Host: [2001:db8::1"), 421, ""),
    (request("GET / HTTP/1.1", "Host: 61.128.200.2:8001"), 421, ""),
    (request("GET / HTTP/1.1"), 400, ""),
    (request("GET / HTTP/1.0"), 421, ""),
    (request("GET / HTTP/1.1", "Host:"), 400, ""),
    (request("GET / HTTP/1.1", f"Host: {HOST}", "Host: evil.test"), 400, ""),
    (request("GET / HTTP/1.1", f"Host: {HOST}\tx"), 400, ""),
    (request("GET @evil.test/ HTTP/1.1", f"Host: {HOST}"), 400, ""),
    (request("GET .evil.test/ HTTP/1.1", f"Host: {HOST}"), 400, ""),
    (request("GET http:///x HTTP/1.1", f"Host: {HOST}"), 400, ""),
    (request("GET / HTTP/1.1", f"Host: {HOST}", "X: " + "y" * 100_000), 400, ""),
    (request("GET /" + "y" * 100_000 + " HTTP/1.1", f"Host: {HOST}"), 414, ""),
    (request("TRACE / HTTP/1.1", f"Host: {HOST}"), 405, ""),
    (request("CONNECT evil.test:80 HTTP/1.1", "Host: evil.test:80"), 400, ""),
    (request("GET / HTTP/3.0", f"Host: {HOST}"), 505, ""),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400, ""),
]


def parsed(answer: bytes) -> tuple[int, dict[str, str]]:
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    fields = [line.partition(": ") for line in head[1:]]
    assert len({name.lower() for name, *_ in fields}) == len(fields), head
    return int(head[0].split()[1]), {name.lower(): value for name, _, value in fields}


def assert_harmless(edge: Edge, answer: bytes) -> None:
    """No answer leads anywhere but to the site's own places, and none has a header that a client could have made."""
    while answer.startswith(b"HTTP/1."):  # one after the other, where a request was taken for several
        status, fields = parsed(answer)
        assert set(fields) <= {"server", "date", "content-type", "content-length", "connection", "location"}, answer
        assert ("location" in fields) == (300 <= status < 400), answer
        if "location" in fields:
            places = [f"http://{a}" + (f":{p}" if p != 80 else "") for s in edge.world.sites
                      for a, p in [s.public["telecom"]]]  # fmt: skip
            assert any(fields["location"].startswith(f"{place}/") for place in places), answer
        else:
            assert 400 <= status < 506, answer
        body = answer.partition(b"\r\n\r\n")[2]
        answer = body[int(fields.get("content-length", "0")) :]
    assert b"Location" not in answer


def test_requests_of_every_kind(lab: Lab, edge: Edge) -> None:
    listener = edge.world.by_name["telecom"].listener.ip
    wrong = []
    for data, status, location in EXACT:
        answer = ask(lab, data, listener)
        assert_harmless(edge, answer)
        got, fields = parsed(answer)
        if (got, fields.get("location", "")) != (status, location):
            wrong.append((data[:100], status, got, fields.get("location", "")))
    assert wrong == []
    two = request("GET /1 HTTP/1.1", f"Host: {HOST}") + request("GET /2 HTTP/1.1", "Host: lib.campus.test")
    assert ask(lab, two, listener).count(b"HTTP/1.1 302") == 2, "one connection carries several requests"


token = st.text(st.characters(max_codepoint=255, blacklist_characters="\n"), max_size=30)
hosts = st.sampled_from([HOST, "evil.test", f"{HOST}:80", "", "[::1]", f"{HOST}\r\nLocation: http://evil.test", "\0"])
targets = st.one_of(
    st.sampled_from(["/", "*", "//evil.test", "http://evil.test/", f"http://{HOST}@evil.test/", "/\t", "?", "#"]),
    token,
    token.map(lambda text: f"/{text}"),
)
lines = st.builds(
    lambda method, target, version: f"{method} {target} {version}",
    st.sampled_from(["GET", "HEAD", "POST", "get", "", "G\0T", "OPTIONS", "PROPFIND"]) | token,
    targets,
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/9", "", "HTTP/1.1 x"]),
)
headers = st.lists(st.builds(lambda name, value: f"{name}: {value}", st.sampled_from(
    ["Host", "X", "X-Forwarded-Host", "Location", "Content-Length", "Transfer-Encoding", "Connection", ""]) | token,
    token | hosts), max_size=5)  # fmt: skip


def test_malformed_requests_lead_nowhere(lab: Lab, edge: Edge) -> None:
    """A few hundred requests that hypothesis makes up, and raw bytes."""
    listener = edge.world.by_name["telecom"].listener.ip
    asked = 0

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(lines, hosts, headers, st.binary(max_size=50))
    @example("GET / HTTP/1.1", HOST, [], b"")
    def try_one(line: str, host: str, more: list[str], body: bytes) -> None:
        nonlocal asked
        asked += 1
        data = request(line, f"Host: {host}", *more) + body
        assert_harmless(edge, ask(lab, data, listener))

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(min_size=1, max_size=200))
    def try_bytes(data: bytes) -> None:
        nonlocal asked
        asked += 1
        assert_harmless(edge, ask(lab, data, listener))

    try_one()
    try_bytes()
    assert asked >= 100
    assert ask(lab, EXACT[0][0], listener).startswith(b"HTTP/1.1 302")


def test_a_reload_loses_no_request(lab: Lab, edge: Edge) -> None:
    """Four clients that ask without a pause, while the listener's table is exchanged again and again."""
    listener = edge.world.by_name["unicom"].listener.ip
    stop = threading.Event()
    statuses: list[bytes] = []

    def client() -> None:
        while not stop.is_set():
            statuses.append(ask(lab, EXACT[0][0], listener)[:12])

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(12):
        before = len(statuses)
        control.send_to(lab, edge.world, "unicom", "telecom" if number % 2 else "unicom")
        await_true(lambda before=before: len(statuses) > before + 40, "more answers after the reload")
    stop.set()
    for thread in threads:
        thread.join()
    control.send_to(lab, edge.world, "unicom", "unicom")
    assert set(statuses) == {b"HTTP/1.1 302"}
    assert len(statuses) > 480


FAULTS: dict[str, tuple[Fault, str]] = {
    "a provider's link": (LinkDown(link=("telecom", "border-telecom")), "telecom"),
    "a provider's link that keeps its carrier": (OneWayCut(link=("mobile", "border-mobile")), "mobile"),
    "a border router's cable to the campus": (LinkDown(link=("border-unicom", "campus")), "unicom"),
    "a redirector that hangs": (Pause(node=names.REDIRECTOR), "unicom"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_users_are_sent_another_way_and_back(lab: Lab, edge: Edge, what: str) -> None:
    fault, isp = FAULTS[what]
    faults = Faults(lab)
    client = edge.clients(isp)[0].node
    edge.await_way(isp, isp, 20)
    with faults.active(fault):
        edge.await_way(isp, "education", 20)
        fetch = edge.fetch(client, HOST)
        assert (fetch.outcome, fetch.redirected) == ("ok", False)
    edge.await_way(isp, isp, 20)
    fetch = edge.fetch(client, HOST)
    assert (fetch.outcome, fetch.redirected) == ("ok", True)
    told = [(event["network"], event["way"]) for event in events(lab, "way")]
    assert (isp, "education") in told
    assert (isp, isp) in told


def test_programs_that_die_are_started_again(lab: Lab, edge: Edge) -> None:
    master = control.master(lab, "mobile")
    worker = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
    assert len(worker) == 1
    os.kill(int(worker[0]), signal.SIGKILL)
    assert edge.fetch("mobile-1", HOST).redirected
    await_true(lambda: worker != Path(
        f"/proc/{master.pid}/task/{master.pid}/children").read_text().split() != [], "another worker")  # fmt: skip
    master.signal(signal.SIGKILL)
    await_true(lambda: control.master(lab, "mobile").pid != master.pid, "another nginx")
    await_true(lambda: edge.fetch("mobile-1", HOST).redirected, "users to be redirected again")
    again = control.master(lab, "mobile")
    await_true(lambda: Path(f"/proc/{again.pid}/task/{again.pid}/children").read_text(), "its worker")
    control.send_to(lab, edge.world, "mobile", "unicom")  # it is the new one that serves
    await_true(lambda: edge.fetch("mobile-1", HOST).place == "123.112.200.2:8001", "the new table")
    control.send_to(lab, edge.world, "mobile", "mobile")
    await_true(lambda: edge.fetch("mobile-1", HOST).place == "111.0.200.2:8001", "the old table")
    assert again.alive()
    assert [event["network"] for event in events(lab, "redirector")] == ["mobile"]


def test_rules_that_are_flushed_come_back(lab: Lab, edge: Edge) -> None:
    lab.exec("border-telecom", ["nft", "flush", "ruleset"], check=True)
    lab.exec(names.INNER, ["nft", "flush", "chain", "ip", "edge", "isp_mobile"], check=True)
    await_true(lambda: {event["node"] for event in events(lab, "rules")} == {"border-telecom", "inner"}, "the rules")
    for client in ("telecom-1", "mobile-1"):
        assert edge.fetch(client, HOST).redirected
    assert lab.services(names.INNER)[WATCH][0].alive()


def test_by_routes_alone(state: Path) -> None:
    """Variant pbr, with a network that is nearer than the education network, and a site that has https there. Users may
    keep redirects."""
    pairs = [{"between": ["telecom", "unicom"], "delay": "10ms"}]
    sites = {HOST: {"https": {"mobile": "m.campus.test"}}}
    lab = campus(
        "edge-pbr", exchange={**EXCHANGE, "pairs": pairs}, redirect={"variant": "pbr", "keep": "1h"}, sites=sites
    )
    edge = edge_of(lab)
    memory = Memory()
    assert edge.fetch("unicom-1", HOST, memory=memory).redirected
    assert edge.fetch("telecom-1", HOST).place == "61.128.200.2:8001"
    assert edge.fetch("unicom-1", HOST).place == "123.112.200.2:8001"
    mobile = edge.fetch("mobile-1", HOST, "/page?x", follow=False).hops[0]
    assert mobile.redirects[0].location == "https://m.campus.test:8001/page?x"
    assert not edge.fetch("cernet-1", HOST).redirected
    faults = Faults(lab)
    with faults.active(LinkDown(link=("telecom", "border-telecom"))):
        edge.await_way("telecom", "unicom", 20)
        assert edge.fetch("telecom-1", HOST).place == "123.112.200.2:8001"
        with faults.active(LinkDown(link=("unicom", "border-unicom"))):
            edge.await_way("telecom", "education", 20)
            fetch = edge.fetch("telecom-1", HOST)
            assert (fetch.outcome, fetch.redirected) == ("ok", False)
            assert not edge.fetch("unicom-1", HOST, memory=memory, timeout=2).ok
            assert edge.fetch("unicom-1", HOST, memory=memory).ok  # who had no page asks anew
    edge.await_way("unicom", "unicom", 20)
    assert edge.fetch("unicom-1", HOST, memory=memory).place == "123.112.200.2:8001"
    with faults.active(LinkDown(link=("cernet", "border-cernet"))):
        assert not edge.fetch("unicom-1", HOST, timeout=2).ok
        kept = edge.fetch("unicom-1", HOST, memory=memory)
        assert (kept.outcome, kept.redirected, kept.place) == ("ok", False, "123.112.200.2:8001")
    edge.await_way("telecom", "telecom", 20)
    assert edge.fetch("telecom-1", HOST).place == "61.128.200.2:8001"
    lab.down()


def test_without_a_mode_everything_comes_by_the_education_network(state: Path) -> None:
    lab = campus("edge-none", mode="none", exchange=EXCHANGE)
    edge = edge_of(lab)
    for client, network in (("telecom-1", "telecom"), ("mobile-2", "mobile")):
        fetch = edge.fetch(client, HOST)
        assert (fetch.ok, fetch.redirected) == (True, False)
        assert edge.ways(client, HOST) == [[client, network, "cernet", "border-cernet", "campus", "web1"]]
    lab.down()
