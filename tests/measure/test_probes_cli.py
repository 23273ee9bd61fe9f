"""The commands ``probe`` and ``capture`` in a lab that is up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_world import answering, lab_of, serving

from testbed.cli import main
from testbed.lab.lab import Lab
from testbed.measure import pcapng

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts and a router."""
    with lab_of(nodes={"a": None, "b": None, "r": {"kind": "router"}}, links=[["a", "r"], ["r", "b"]]) as made:
        yield made


@pytest.fixture
def say(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``testbed probe ...``: its exit status and what it printed."""

    def run(*words: str) -> tuple[int, str]:
        status = main(["probe", *words, "--name", lab.name])
        return status, capsys.readouterr().out

    return run


def test_ping_and_path(lab: Lab, say: Any) -> None:
    status, text = say("ping", "a", "b", "--count", "2", "--interval", "0", "--timeout", "5")
    assert status == 0
    assert text.endswith(" ms\n")
    assert "2 sent, 0 lost, median" in text
    assert say("ping", "r", "192.0.2.1", "--count", "1")[0] == 1
    status, text = say("path", "a", "b", "--json", "--timeout", "5")
    assert (status, [hop["node"] for hop in json.loads(text)["hops"]]) == (0, ["r", "b"])
    status, text = say("path", "a", "b", "--method", "icmp", "--timeout", "5")
    assert text.startswith("1: r (")
    assert say("path", "a", "b", "--method", "tcp")[0] == 1


def test_tcp_http_and_dns(lab: Lab, say: Any) -> None:
    def answer(request: Any) -> None:
        request.send_response(204)
        request.end_headers()

    with serving(lab, "b", 80, answer), answering(lab, "b", 53, lambda query: query[:2] + b"\x81\x83" + query[4:]):
        assert say("tcp", "a", "b:80")[0] == 0
        assert say("http", "a", "http://b/")[1].startswith("ok, status 204, 0 bytes\nconnected ")
        assert say("dns", "a", "b", "shop.test")[1].startswith("nxdomain ")
    assert say("tcp", "a", "b:80") == (1, "refused\n")
    status, text = say("http", "a", "http://b/", "--json")
    assert (status, json.loads(text)["outcome"], json.loads(text)["total"]) == (1, "refused", None)


def test_throughput_and_availability(lab: Lab, say: Any) -> None:
    status, text = say("throughput", "a", "b", "--seconds", "0.2", "--rate", "4mbit", "--json")
    assert status == 0
    assert 0 < json.loads(text)["bps"] < json.loads(text)["link_bps"]
    assert "Mbit/s of payload" in say("throughput", "a", "b", "--seconds", "0.2", "--protocol", "udp")[1]
    assert say("throughput", "a", "b", "--rate", "4")[0] == 1
    status, text = say("availability", "a", "b:80", "--seconds", "0.2", "--period", "0.02", "--json")
    seen = json.loads(text)
    assert (status, seen["lost"], seen["outages"][0]["complete"]) == (1, seen["asked"], False)
    assert "0 outages" in say("availability", "a", "b", "--seconds", "0.1", "--timeout", "10")[1]


def test_what_a_node_has(lab: Lab, say: Any) -> None:
    assert "to-a" in say("counters", "r")[1]
    assert json.loads(say("counters", "r", "--json")[1])["to-a"]["rx_drop"] == 0
    assert say("usage", "a")[1].startswith("0 processes, 0.00 s of CPU time")
    status, text = say("conntrack", "a")
    assert status in (0, 1)
    assert "protocol" in text or status == 1


def test_a_node_that_is_not_there(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "ping", "x", "b", "--name", lab.name]) == 1
    assert "has no node 'x'" in capsys.readouterr().err


def test_capture_for_a_time(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.pcapng"
    assert main(["capture", "r", "-o", str(file), "--seconds", "0.2", "--name", lab.name]) == 0
    said = capsys.readouterr()
    assert said.out == f"{file}\n"
    assert "packets, 0 dropped" in said.err
    assert [interface.name for interface in pcapng.read(file).interfaces] == ["r:to-a", "r:to-b"]
    assert main(["capture", "r:nosuch", "--name", lab.name]) == 1


def test_capture_until_interrupted(lab: Lab, tmp_path: Path) -> None:
    """Ctrl-C is how it is meant to end: status 0, and the file is whole."""
    words = [sys.executable, "-m", "testbed", "capture", "a:eth0", "--name", lab.name]
    child = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 30
    while not (tmp_path / "a-eth0.pcapng").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    while not pcapng.read(tmp_path / "a-eth0.pcapng").packets:
        lab.exec("a", ["ping", "-c1", "-W5", str(lab.plan.address("b"))])
        assert time.monotonic() < end
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "a-eth0.pcapng\n")
    assert "0 dropped" in err
    content = pcapng.read(tmp_path / "a-eth0.pcapng")
    assert content.whole
    assert content.dropped == {0: 0}
    if shutil.which("capinfos"):
        command = ["capinfos", "-c", "-M", "a-eth0.pcapng"]
        said = subprocess.run(command, cwd=tmp_path, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True)
        assert f"Number of packets:   {len(content.packets)}" in said.stdout
