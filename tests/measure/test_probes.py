"""Probes against real nodes: each sees what is there, says what is not, and records both."""

from __future__ import annotations

import http.server
import math
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_world import Recorded, answering, lab_of, serving

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.programs import SEARCH_PATH
from testbed.measure.probes.conntrack import conntrack, conntrack_count
from testbed.measure.probes.counters import counters, series_of
from testbed.measure.probes.dns import dns_query, encode_name
from testbed.measure.probes.http import http_get
from testbed.measure.probes.path import path
from testbed.measure.probes.ping import ping
from testbed.measure.probes.tcp import tcp_connect
from testbed.measure.probes.throughput import payload_share, throughput
from testbed.measure.probes.usage import UsageReader, usage
from testbed.net.namespace import inside
from testbed.plan.types import Service

pytestmark = pytest.mark.root

RATE = 20_000_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts with two routers between them, a slow host, and a pair that speaks IPv6."""
    with lab_of(
        nodes={"a": None, "b": None, "slow": None, "six": None, "r1": {"kind": "router"}, "r2": {"kind": "router"}},
        links=[
            ["a", "r1"],
            ["r1", "r2"],
            ["r2", "b"],
            {"endpoints": ["slow", "r2"], "rate": "20mbit"},
            {"endpoints": ["six", "r2"], "addresses": ["fd00:6::2/64", "fd00:6::1/64"]},
        ],
    ) as made:
        yield made


@pytest.fixture
def recorded() -> Recorded:
    """What probes tell."""
    return Recorded()


def test_ping(lab: Lab, recorded: Recorded) -> None:
    series = ping(lab, "a", "b", count=5, interval=0.01, timeout=5, recorder=recorded)
    assert (series.sent, series.lost, series.duplicates) == (5, 0, 0)
    assert all(0 < rtt < 5 for rtt in series.rtts)
    assert recorded.values("ping_rtt") == series.rtts
    assert {node for _, name, node, _ in recorded.rows if name == "ping_rtt"} == {"a>b"}
    (told,) = recorded.probes()
    assert (told["probe"], told["target"], told["received"]) == ("ping", "b", 5)
    assert told["cost"] >= 0
    assert told["started"] <= told["ended"]
    assert recorded.values("probe_cost") == pytest.approx([told["cost"]], abs=1e-6)


def test_ping_of_ipv6(lab: Lab) -> None:
    assert ping(lab, "r2", "six", count=2, interval=0, timeout=5).lost == 0
    assert ping(lab, "six", "fd00:6::1", count=2, interval=0, timeout=5).lost == 0


def test_ping_without_answer_has_samples_without_value(lab: Lab, recorded: Recorded) -> None:
    ignore = "net.ipv4.icmp_echo_ignore_all"
    lab.exec("b", ["sysctl", "-qw", f"{ignore}=1"], check=True)
    try:
        silent = ping(lab, "a", "b", count=3, interval=0.01, timeout=0.2, recorder=recorded)
    finally:
        lab.exec("b", ["sysctl", "-qw", f"{ignore}=0"], check=True)
    no_way = ping(lab, "r1", "192.0.2.1", count=3, interval=0.01, timeout=5, recorder=recorded)
    assert (silent.loss, no_way.loss) == (1, 1)
    assert math.isnan(silent.median)
    assert [math.isnan(value) for value in recorded.values("ping_rtt")] == [True] * 6


def test_nodes_that_are_not_there(lab: Lab) -> None:
    with pytest.raises(TestbedError, match="no node 'c'"):
        ping(lab, "a", "c")
    with pytest.raises(TestbedError, match="no node 'c'"):
        ping(lab, "c", "a")
    with pytest.raises(TestbedError, match="has no port"):
        tcp_connect(lab, "a", "b")
    with pytest.raises(TestbedError, match="no URL"):
        http_get(lab, "a", "https://b/")


def test_tcp_connect(lab: Lab, recorded: Recorded) -> None:
    listener = inside(lab.namespace("b"), lambda: socket.create_server((str(lab.plan.address("b")), 7001)))
    with listener:
        there = tcp_connect(lab, "a", "b:7001", recorder=recorded)
    assert there.ok
    assert there.seconds is not None
    assert 0 < there.seconds < 5
    assert tcp_connect(lab, "a", "b:7001", recorder=recorded).outcome == "refused"
    assert tcp_connect(lab, "r1", "192.0.2.1:80").outcome == "unreachable"
    assert [math.isnan(value) for value in recorded.values("tcp_connect")] == [False, True]
    assert [told["outcome"] for told in recorded.probes()] == ["ok", "refused"]


def _answer(request: http.server.BaseHTTPRequestHandler) -> None:
    if request.path == "/moved":
        request.send_response(302)
        request.send_header("Location", "/file")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    if request.path == "/loop":
        request.send_response(301)
        request.send_header("Location", "/loop")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    if request.path == "/chunked":
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"5\r\nhello\r\n0\r\n\r\n")
        return
    if request.path == "/slow":
        request.wfile.write(b"HTTP/1.1 200 OK\r\nX-")
        threading.Event().wait(1)
        return
    if request.path == "/short":
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        request.close_connection = True
        return
    if request.path == "/rubbish":
        request.wfile.write(b"no HTTP at all\r\n\r\n")
        request.close_connection = True
        return
    if request.path == "/hang-up":
        request.close_connection = True
        return
    body = f"for {request.headers['Host']}".encode() * 100
    request.send_response(404 if request.path == "/none" else 200)
    request.send_header("Content-Length", str(len(body)))
    request.send_header("X-Instance", "one")
    request.end_headers()
    request.wfile.write(body)


@pytest.fixture(scope="module")
def web(lab: Lab) -> Iterator[None]:
    """A web server in ``b``."""
    with serving(lab, "b", 8080, _answer):
        yield


def test_http(lab: Lab, web: None, recorded: Recorded) -> None:
    got = http_get(lab, "a", "http://b:8080/file?x=1", recorder=recorded)
    assert (got.ok, got.outcome, got.status, got.bytes) == (True, "ok", 200, 100 * len("for b:8080"))
    assert got.headers["x-instance"] == "one"
    assert got.connect is not None
    assert got.first_byte is not None
    assert got.total is not None
    assert 0 < got.connect < got.first_byte <= got.total < 10
    assert recorded.values("http_total") == [got.total]
    assert recorded.probes()[0]["status"] == 200
    none = http_get(lab, "a", "http://b:8080/none")
    assert (none.ok, none.outcome, none.status) == (False, "ok", 404)


def test_http_redirects(lab: Lab, web: None) -> None:
    followed = http_get(lab, "a", "http://b:8080/moved")
    assert (followed.status, followed.final_url) == (200, "http://b:8080/file")
    assert [(r.status, r.location) for r in followed.redirects] == [(302, "http://b:8080/file")]
    left = http_get(lab, "a", "http://b:8080/moved", follow=False)
    assert (left.status, left.bytes, len(left.redirects)) == (302, 0, 1)
    loop = http_get(lab, "a", "http://b:8080/loop", most_redirects=3)
    assert (loop.outcome, len(loop.redirects)) == ("too-many-redirects", 4)


def test_http_to_an_address_that_the_url_does_not_name(lab: Lab, web: None) -> None:
    got = http_get(lab, "a", "http://www.example.org:8080/", address="b")
    assert (got.ok, got.bytes) == (True, 100 * len("for www.example.org:8080"))


@pytest.mark.parametrize(
    ("page", "outcome", "timeout"),
    [
        ("slow", "timeout", 0.3),
        ("short", "short", 10),
        ("rubbish", "malformed", 10),
        ("hang-up", "reset", 10),
        ("chunked", "ok", 10),
    ],
)
def test_http_answers_that_are_odd(lab: Lab, web: None, page: str, outcome: str, timeout: float) -> None:
    got = http_get(lab, "a", f"http://b:8080/{page}", timeout=timeout)
    assert got.outcome == outcome
    assert (got.total is not None) == (outcome == "ok")


def test_http_without_a_server(lab: Lab) -> None:
    assert http_get(lab, "a", "http://b:8081/").outcome == "refused"


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_throughput_of_a_slow_link(lab: Lab, recorded: Recorded, protocol: str) -> None:
    """Never more than the rate; how close to it depends on the machine, so only half of it is asked for."""
    got = throughput(
        lab,
        "a",
        "slow",
        protocol=protocol,  # type: ignore[arg-type]
        seconds=0.6,
        warm_up=0.4,
        rate_bps=2 * RATE if protocol == "udp" else None,
        recorder=recorded,
    )
    assert got.outcome == "ok"
    assert 0.5 * RATE < got.link_bps < 1.1 * RATE
    assert got.bps == pytest.approx(got.link_bps * payload_share(protocol))  # type: ignore[arg-type]
    assert recorded.values("throughput_bps") == [got.bps]
    if protocol == "udp":
        assert 0.2 < got.loss < 0.8


def test_throughput_is_bounded_in_rate(lab: Lab) -> None:
    got = throughput(lab, "a", "b", seconds=0.5, warm_up=0.1, rate_bps=4_000_000)
    assert 0 < got.bps < 6_000_000
    got = throughput(lab, "a", "b", protocol="udp", seconds=0.5, warm_up=0.1, rate_bps=4_000_000)
    assert 0 < got.bps < 6_000_000


def test_payload_shares() -> None:
    assert payload_share("tcp") == pytest.approx(1448 / 1514)
    assert payload_share("udp") == pytest.approx(1472 / 1514)
    assert payload_share("tcp", 1400, 6) == pytest.approx(1328 / 1414)


def _dns(query: bytes) -> bytes | None:
    head, question = query[:12], query[12:]
    name = question[: question.index(b"\0") + 1]
    identifier = head[:2]
    if name == encode_name("none.test"):
        return identifier + struct.pack("!HHHHH", 0x8183, 1, 0, 0, 0) + question
    if name == encode_name("silent.test"):
        return None
    if name == encode_name("bad.test"):
        return identifier + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0) + question + b"\xc0\xff"
    alias = b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 60, 6) + b"\x03www\xc0\x0c"
    address = b"\xc0" + bytes([12 + len(question) + 12]) + struct.pack("!HHIH", 1, 1, 30, 4) + bytes([10, 1, 2, 3])
    return identifier + struct.pack("!HHHHH", 0x8180, 1, 2, 0, 0) + question + alias + address


def test_dns(lab: Lab, recorded: Recorded) -> None:
    with answering(lab, "b", 5353, _dns):
        got = dns_query(lab, "a", "b:5353", "shop.test", recorder=recorded)
        assert (got.outcome, got.addresses) == ("ok", ["10.1.2.3"])
        assert [(r.name, r.type, r.ttl, r.data) for r in got.records] == [
            ("shop.test", "CNAME", 60, "www.shop.test"),
            ("www.shop.test", "A", 30, "10.1.2.3"),
        ]
        assert got.seconds is not None
        assert recorded.values("dns_seconds") == [got.seconds]
        assert dns_query(lab, "a", "b:5353", "none.test").outcome == "nxdomain"
        assert dns_query(lab, "a", "b:5353", "bad.test").outcome == "malformed"
        assert dns_query(lab, "a", "b:5353", "silent.test", timeout=0.1, tries=2).outcome == "timeout"
    assert dns_query(lab, "a", "b:5353", "shop.test").outcome == "refused"
    with pytest.raises(TestbedError, match="not a domain name"):
        dns_query(lab, "a", "b", "a..b")


@pytest.mark.parametrize("method", ["udp", "icmp"])
def test_path(lab: Lab, recorded: Recorded, method: str) -> None:
    got = path(lab, "a", "b", method=method, timeout=5, recorder=recorded)  # type: ignore[arg-type]
    assert got.nodes == ["r1", "r2", "b"]
    assert (got.routers, got.reached) == (["r1", "r2"], True)
    assert all(hop.rtt is not None and 0 < hop.rtt < 5 for hop in got.hops)
    assert recorded.probes()[0]["nodes"] == ["r1", "r2", "b"]


def test_path_in_ipv6_and_to_a_neighbour(lab: Lab) -> None:
    assert path(lab, "r2", "six", timeout=5).nodes == ["six"]


def test_path_that_ends_on_the_way(lab: Lab) -> None:
    cut = path(lab, "r1", "192.0.2.1")
    assert (cut.hops, cut.reached) == ((), False)  # the node itself has no way there
    lab.exec("r2", ["nft", "add table inet cut; add chain inet cut f { type filter hook forward priority 0; }"])
    lab.exec("r2", ["nft", "add rule inet cut f drop"], check=True)
    try:
        got = path(lab, "a", "b", timeout=0.15, tries=1, most=4)
    finally:
        lab.exec("r2", ["nft", "delete table inet cut"], check=True)
    assert got.nodes[0] == "r1"
    assert got.nodes[2:] == ["*", "*"]
    assert not got.reached


def test_counters(lab: Lab, recorded: Recorded) -> None:
    before = counters(lab, "r1")
    ping(lab, "a", "b", count=10, interval=0, timeout=5, size=1000)
    after = counters(lab, "r1", recorder=recorded)
    assert {"to-a", "to-r2", "lo"} <= after.keys()
    grown = after["to-a"] - before["to-a"]
    assert 10 * 1042 <= grown.rx_bytes < 10 * 1042 + 5000
    assert grown.rx_packets >= 10
    named = {(name, node) for _, name, node, _ in recorded.rows}
    assert ("if_rx_bytes", "r1:to-a") in named
    assert {(c.series, c.node) for c in series_of(lab.plan, "r1", "to-a")} <= named
    with pytest.raises(TestbedError, match="no interface 'eth9'"):
        series_of(lab.plan, "r1", "eth9")


def test_conntrack(lab: Lab, recorded: Recorded) -> None:
    lab.exec("r1", ["nft", "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }"])
    lab.exec("r1", ["nft", "add rule ip nat post oifname to-r2 masquerade"], check=True)
    listener = inside(lab.namespace("b"), lambda: socket.create_server((str(lab.plan.address("b")), 7002)))
    with listener:
        client = inside(lab.namespace("a"), lambda: socket.create_connection((str(lab.plan.address("b")), 7002), 10))
        with client, listener.accept()[0]:
            found = [one for one in conntrack(lab, "r1") if one.original.target_port == 7002]
            assert conntrack_count(lab, "r1", recorder=recorded) >= 1
    lab.exec("r1", ["nft", "delete table ip nat"], check=True)
    (one,) = found
    assert (one.protocol, one.state, one.translated) == ("tcp", "ESTABLISHED", True)
    assert one.original.source == str(lab.plan.address("a"))
    assert one.reply.target != one.original.source
    assert recorded.values("conntrack")[0] >= 1


def test_where_connections_cannot_be_listed(lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the kernel's file the program is asked; without either the message says what would help."""
    module = "testbed.measure.probes.conntrack"
    monkeypatch.setattr(f"{module}._LIST", tmp_path / "none")
    if shutil.which("conntrack", path=SEARCH_PATH):
        assert isinstance(conntrack(lab, "r1"), list)
    monkeypatch.setattr(f"{module}._COUNT", tmp_path / "none")
    for ask in (conntrack, conntrack_count):
        with pytest.raises(TestbedError, match="neither /proc/net/nf_conntrack nor the program conntrack"):
            ask(lab, "r1")


def test_usage(lab: Lab, recorded: Recorded) -> None:
    idle = usage(lab, "b")
    burner = lab.spawn("b", Service(name="burner", argv=("python3", "-c", "while True: pass")))
    reader = UsageReader(lab, ["a", "b"])
    try:
        end = time.monotonic() + 30
        while usage(lab, "b").cpu_seconds < 0.1:
            assert time.monotonic() < end
            time.sleep(0.02)
        list(reader.take())
        busy = usage(lab, "b", recorder=recorded)
    finally:
        burner.signal(9)
        burner.wait_gone(10)
    assert busy.processes == idle.processes + 1
    assert busy.rss_bytes > 2**20
    assert recorded.values("node_cpu_seconds") == [busy.cpu_seconds]
    rows = {(series, node): value for _, series, node, value in reader.take()}
    assert rows["node_cpu_seconds", "b"] >= 0.1, "what an ended process used stays"
    assert rows["node_rss_bytes", "b"] < busy.rss_bytes
    assert rows["node_cpu_seconds", "a"] == 0


def test_no_socket_is_left(lab: Lab, web: None) -> None:
    ping(lab, "a", "b", count=1, timeout=5)  # what is loaded once is loaded
    before = len(os.listdir("/proc/self/fd"))
    ping(lab, "a", "b", count=2, interval=0, timeout=5)
    tcp_connect(lab, "a", "b:1")
    http_get(lab, "a", "http://b:8080/slow", timeout=0.05)
    path(lab, "a", "r1", timeout=5)
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the server may not have closed its side
