"""Configurations of name servers, BGP speakers and filters, as text."""

from __future__ import annotations

import json
import time
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.edge.bgp import bird
from testbed.edge.dns import authority, resolver
from testbed.edge.filters import agent, packets, requests
from testbed.edge.filters.spec import FilterSpec
from testbed.edge.measure.fetch import Fetch, Memory
from testbed.measure.probes.http import HttpResult, Redirect

URL = "http://www.campus.test/"
WEB = IPv4Address("202.112.10.80")
TELECOM = authority.View((IPv4Network("61.128.0.0/16"),), {"www.campus.test": IPv4Address("61.128.200.2")})


def answer(place: str = "", **headers: str) -> HttpResult:
    redirects = (Redirect(302, URL, place),) if place else ()
    return HttpResult(
        "u", URL, time.monotonic(), "ok", URL, 302 if place else 200, redirects=redirects, headers=headers
    )


@pytest.mark.parametrize(
    ("control", "kept"),
    [("private, max-age=60", True), ("max-age=60", True), ("private,max-age=60", True), ("max-age=0", False),
     ("s-maxage=60", False), ("no-store", False), ("", False)],
)  # fmt: skip
def test_a_browser_keeps_what_it_may(control: str, kept: bool) -> None:
    memory = Memory()
    memory.note(
        URL, Fetch("u", "www.campus.test", (answer("http://61.128.200.2/", **{"cache-control": control}), answer()))
    )
    assert memory.place(URL) == ("http://61.128.200.2/" if kept else None)
    assert memory.place(f"{URL}other") is None
    memory.note(URL, Fetch("u", "www.campus.test", (HttpResult("u", "http://61.128.200.2/", 0.0, "timeout", ""),)))
    assert memory.place(URL) is None


def test_hosts_share_a_zone_if_they_may() -> None:
    assert authority.zones_of(["www.a.test", "b.test", "lib.a.test", "alone"]) == {
        "a.test": ["www.a.test", "lib.a.test"],
        "test": ["b.test"],
        "alone": ["alone"],
    }


def test_views_are_those_of_hosts_that_have_an_answer() -> None:
    files = authority.files("ns", IPv4Address("10.0.0.53"), {"www.campus.test": WEB, "x.other.test": WEB}, [TELECOM])
    texts = {file.path: file.text for file in files}
    assert texts["0.views"] == "www.campus.test:\n  - net: 61.128.0.0/16\n    A: 61.128.200.2\n"
    assert texts["1.views"].strip() == ""
    assert "edns-client-subnet: off" in texts["knot.conf"]
    assert f"www.campus.test. A {WEB}" in texts["0.zone"]
    plain = authority.files("ns", IPv4Address("10.0.0.53"), {"www.campus.test": WEB})
    assert [file.path for file in plain] == ["knot.conf", "0.zone"]
    assert "geoip" not in plain[0].text


def test_a_resolver_that_tells_of_its_clients_asks_for_it() -> None:
    text = resolver.configuration(IPv4Address("10.0.0.1"), ["a.test", "a.test"], WEB, ecs=True)
    assert text.count(f"server=/a.test/{WEB}@10.0.0.1") == 1
    assert "add-subnet=24" in text
    assert "add-subnet" not in resolver.configuration(IPv4Address("10.0.0.1"), ["a.test"], WEB)


def test_names_of_sessions_are_words_to_bird() -> None:
    session = bird.Session("border-tel", WEB, WEB, 65001, "provider")
    assert bird.protocol_name(session) == "to_border_tel"
    speaker = bird.Speaker(WEB, 65010, (session,))
    assert "protocol static" not in bird.configuration(speaker)
    assert "neighbor 202.112.10.80 as 65001;" in bird.configuration(speaker)


def test_syn_proxy_only_where_connections_are_translated() -> None:
    public, plain = (IPv4Address("61.128.200.2"), 8001), (WEB, 80)
    services = {public: (WEB, 80), plain: None}
    assert "synproxy" not in packets.ruleset("isp0", services, FilterSpec())
    text = packets.ruleset("isp0", services, FilterSpec.model_validate({"syn_proxy": True}))
    assert "set proxied { type ipv4_addr . inet_service; elements = { 61.128.200.2 . 8001 }; }" in text
    assert "61.128.200.2 . 8001 : 202.112.10.80 . 80" in text
    assert "synproxy" not in packets.ruleset("isp0", {plain: None}, FilterSpec.model_validate({"syn_proxy": True}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"opening": "20"}, "not a number a second; write 1/s to 999999/s"),
        ({"opening": "0/s"}, "not a number a second"),
        ({"slow": "1500ms"}, "`slow` is not a whole number of seconds"),
        ({"slow": "0s"}, "`slow` is not a whole number of seconds"),
        ({"ban": {"lasts": "10ms"}}, "`lasts` of a ban is less than a second"),
        ({"held": 0}, "greater than or equal to 1"),
    ],
)
def test_limits_that_cannot_be(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FilterSpec.model_validate(keys)


def test_limits_survive_json() -> None:
    spec = FilterSpec.model_validate({"opening": "7/s", "slow": "3s", "ban": {"after": 0}})
    assert FilterSpec.model_validate(json.loads(spec.model_dump_json())) == spec
    assert "rate=50r/s" in "\n".join(requests.of_server(spec))
    assert requests.of_server(None) == requests.of_redirector(None) == []
    assert "syslog" not in "\n".join(requests.of_redirector(spec))  # nobody is banned


def test_log_lines() -> None:
    line = b"<190>Nov 30 06:42:22 edge: 61.128.1.2 429"
    assert agent.parse(line) == ("61.128.1.2", 429)
    assert agent.parse(line + b"\n") == ("61.128.1.2", 429)
    assert agent.parse(b"<190>Nov 30 06:42:22 edge: 61.128.1.2 429 and more") is None
    assert agent.parse(b"\xff") is None


@given(st.lists(st.tuples(st.floats(0, 100), st.sampled_from(["a", "b"]), st.sampled_from([200, 302, 400, 429]))))
def test_a_ban_needs_that_many_bad_answers_in_that_time(seen: list[tuple[float, str, int]]) -> None:
    """Against the definition: whoever is banned had ``after`` bad answers within the time, since the last ban."""
    ledger = agent.Ledger(FilterSpec.model_validate({"ban": {"after": 3, "within": "10s"}}))
    counted: dict[str, list[float]] = {"a": [], "b": []}
    for now, source, status in sorted(seen):
        banned = ledger.see(source, status, now)
        if status in requests.BAD:
            counted[source].append(now)
        expected = status in requests.BAD and len([t for t in counted[source] if t > now - 10]) >= 3
        assert banned == expected
        if banned:
            counted[source] = []


def test_a_ban_for_too_many_good_requests() -> None:
    ledger = agent.Ledger(FilterSpec.model_validate({"requests": "2/s", "ban": {"within": "2s"}}))
    assert [ledger.see("a", 302, t) for t in (0, 0.1, 0.2, 0.3)] == [False] * 4
    assert not ledger.see("b", 302, 0.35)
    assert ledger.see("a", 302, 0.4)
    assert not ledger.see("a", 302, 0.5), "it begins anew"
