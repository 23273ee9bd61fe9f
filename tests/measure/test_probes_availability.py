"""A timeline of questions while a link goes down and comes back."""

from __future__ import annotations

import http.server
import math
import socket
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from probe_world import Recorded, lab_of, serving
from waiting import await_true

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.measure.probes.asking import kind_of
from testbed.measure.probes.availability import Availability
from testbed.net.namespace import inside

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts and a router."""
    with lab_of(nodes={"a": None, "b": None, "r": {"kind": "router"}}, links=[["a", "r"], ["r", "b"]]) as made:
        yield made


def _goods(watch: Availability) -> int:
    return sum(attempt.ok for attempt in watch.timeline.attempts)


def _block(lab: Lab, blocked: bool) -> tuple[float, float]:
    """Have ``r`` drop everything, or no longer; between which moments that took effect."""
    before = time.monotonic()
    if blocked:
        rules = "add table inet cut; add chain inet cut f { type filter hook forward priority 0; policy drop; }"
    else:
        rules = "delete table inet cut"
    lab.exec("r", ["nft", rules], check=True)
    return before, time.monotonic()


def test_an_outage_is_seen_where_it_was(lab: Lab) -> None:
    recorded = Recorded()
    with Availability(lab, "a", "b", period=0.02, timeout=0.2, recorder=recorded) as watch:
        await_true(lambda: _goods(watch) >= 5, "five answers")
        down = _block(lab, True)
        await_true(lambda: watch.timeline.lost >= 5, "five lost")
        up = _block(lab, False)
        await_true(lambda: bool(watch.timeline.outages) and watch.timeline.outages[-1].complete, "the end of it")
    seen = watch.stop()
    assert seen == watch.stop(), "a second stop returns the same"
    assert seen.kind == "ping"
    assert 0 < seen.available < 1
    longest = max(seen.outages, key=lambda outage: outage.lost)
    assert longest.lost >= 5
    assert longest.start is not None
    assert longest.end is not None
    assert longest.start.earliest <= down[1]
    assert longest.start.latest >= down[0]
    assert longest.end.earliest <= up[1]
    assert longest.end.latest >= up[0]
    answers = recorded.values("answer_seconds")
    assert len(answers) == len(seen.attempts)
    assert sum(math.isnan(value) for value in answers) == seen.lost
    told = [detail for kind, _, detail in recorded.events if kind == "outage"]
    assert [one["lost"] for one in told] == [outage.lost for outage in seen.outages]
    assert max(told, key=lambda one: one["lost"])["seconds"] == pytest.approx(longest.seconds, abs=1e-5)
    assert recorded.probes()[0]["lost"] == seen.lost


def test_tcp_and_http(lab: Lab) -> None:
    status = 200

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"ok")

    with serving(lab, "b", 8080, answer):
        tcp = Availability(lab, "a", "b:8080", period=0.01, timeout=5).start()
        web = Availability(lab, "a", "http://b:8080/", period=0.01, timeout=5).start()
        await_true(lambda: _goods(tcp) >= 5 and _goods(web) >= 5, "answers of both")
        status = 503
        await_true(lambda: web.timeline.outcomes["http-503"] > 0, "a 503")
        web.stop()
    await_true(lambda: tcp.timeline.outcomes["refused"] > 0, "a refusal")
    seen = tcp.stop()
    assert (seen.kind, web.stop().kind) == ("tcp", "http")
    assert seen.outages[-1].end is None


def test_questions_do_not_wait_for_each_other(lab: Lab) -> None:
    """A server that accepts nothing: one question each period all the same, all of them lost by their time-out."""
    listener = inside(lab.namespace("b"), lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    with listener:
        listener.bind((str(lab.plan.address("b")), 7010))
        listener.listen(64)
        with Availability(lab, "a", "http://b:7010/", period=0.02, timeout=0.5) as watch:
            await_true(lambda: watch.timeline.lost >= 3, "three lost")
        attempts = watch.stop().attempts
    starts = [attempt.started for attempt in attempts]
    assert min(b - a for a, b in pairwise(starts)) < 0.4
    assert watch.stop().outcomes.keys() == {"timeout"}


def test_what_is_refused_at_once(lab: Lab) -> None:
    with pytest.raises(TestbedError, match="no node 'nobody'"):
        Availability(lab, "a", "nobody")
    with pytest.raises(TestbedError, match="no node 'nobody'"):
        Availability(lab, "nobody", "a")
    with pytest.raises(TestbedError, match="period of at least 1 ms"):
        Availability(lab, "a", "b", period=0)
    Availability(lab, "a", "b").stop()  # never started: fine


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("b", "ping"),
        ("10.0.0.1", "ping"),
        ("fd00::1", "ping"),
        ("b:80", "tcp"),
        ("[fd00::1]:80", "tcp"),
        ("http://b", "http"),
    ],
)
def test_kinds(target: str, kind: str) -> None:
    assert kind_of(target) == kind
