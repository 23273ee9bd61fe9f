"""The methods of ``measure``: each does what its function does, and the run has it afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
from probe_world import answering, lab_of, serving

from testbed.lab.lab import Lab
from testbed.measure import pcapng
from testbed.measure.measure import Measure
from testbed.measure.store import Run, RunReader
from testbed.plan.types import Impairment, Plan
from testbed.progress import Silent

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts and a router."""
    with lab_of(nodes={"a": None, "b": None, "r": {"kind": "router"}}, links=[["a", "r"], ["r", "b"]]) as made:
        yield made


@pytest.fixture
def measure(run: Run) -> Measure:
    """On a run of its own."""
    return Measure(run, repeats=1, seed=1, parameters={}, progress=Silent())


def test_every_probe_is_recorded(lab: Lab, measure: Measure) -> None:
    def answer(request: object) -> None:
        request.send_response(204)  # type: ignore[attr-defined]
        request.end_headers()  # type: ignore[attr-defined]

    with serving(lab, "b", 80, answer), answering(lab, "b", 53, lambda query: query[:2] + b"\x81\x83" + query[4:]):
        assert measure.ping(lab, "a", "b", count=2, interval=0, timeout=5).lost == 0
        assert measure.tcp_connect(lab, "a", "b:80").ok
        assert measure.http(lab, "a", "http://b/").status == 204
        assert measure.dns(lab, "a", "b", "x.test").outcome == "nxdomain"
    assert measure.throughput(lab, "a", "b", seconds=0.1, warm_up=0, rate_bps=1_000_000).bps > 0
    assert measure.trace(lab, "a", "b", timeout=5).nodes == ["r", "b"]
    assert measure.counters(lab, "r")["to-a"].rx_packets > 0
    assert measure.usage(lab, "b").processes == 0
    assert measure.conntrack_count(lab, "r") >= 0
    assert isinstance(measure.conntrack(lab, "r"), list)
    with measure.availability(lab, "a", "b:81", period=0.02) as watch:
        while not watch.timeline.attempts:
            time.sleep(0.005)
    assert watch.stop().lost == len(watch.stop().attempts)
    measure.run.close("passed")
    found = RunReader(measure.run.path)
    kinds = "ping tcp http dns throughput path counters usage conntrack conntrack availability"
    assert [event.detail["probe"] for event in found.events("probe")] == kinds.split()
    assert all(
        0 <= event.detail["started"] <= event.detail["ended"] <= event.t + 1e-6 for event in found.events("probe")
    )
    assert {sample.node for sample in found.samples("probe_cost")} == set(kinds.split())
    (outage,) = found.events("outage")
    assert (outage.node, outage.detail["target"], outage.detail["end"]) == ("a", "b:81", None)
    assert all(math.isnan(sample.value) for sample in found.samples("answer_seconds"))


def test_nodes_are_watched_and_captured_to_the_end(lab: Lab, measure: Measure) -> None:
    measure.watch_nodes(lab, ["a", "r"], period=3600)
    captures = [measure.capture(lab, "a:eth0"), measure.capture(lab, "a:eth0")]
    measure.ping(lab, "a", "b", count=3, interval=0, timeout=5)
    measure.stop()
    assert not any(capture.running() for capture in captures)
    files = sorted((measure.path / "pcap").iterdir())
    assert [file.name for file in files] == ["a-eth0.2.pcapng", "a-eth0.pcapng"]
    assert [len(pcapng.read(file).packets) for file in files] == [6, 6]
    measure.run.close("passed")
    found = RunReader(measure.run.path)
    first, last = (sample.value for sample in found.samples("if_tx_packets", "r:to-a"))
    assert last - first == 3
    assert len(found.samples("node_rss_bytes", "a")) == 2
    assert len(found.events("capture")) == 2


def test_links_that_lie_make_the_run_invalid(lab: Lab, measure: Measure) -> None:
    true = lab.plan
    (link,) = true.links_of("a")
    lying = link.model_copy(update={"forward": Impairment(delay_us=30_000)})
    lab.plan = Plan.model_validate({**true.model_dump(), "links": [lying.model_dump()]})
    try:
        found = measure.check_fidelity(lab)
    finally:
        lab.plan = true
    assert not found.ok
    assert measure.run.invalid_reasons == found.reasons
    assert found.reasons[0].startswith(f"link {link.name}, from a to r: delay is ")
