"""The self-check of links: what is as the plan says passes, what is not is named."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_world import Recorded, lab_of

from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.measure import fidelity, trials
from testbed.measure.fidelity import Fidelity, check_fidelity, delay_reason, rate_reason, shaped_links
from testbed.measure.probes.counters import counters
from testbed.model.topology import Topology
from testbed.plan.expand import expand
from testbed.plan.types import Impairment, Plan

LOW, HIGH = 8_000_000, 40_000_000


@pytest.fixture(scope="module")
def made() -> Iterator[Lab]:
    """A router, two hosts with a rate of their own in each direction, one on a switch, and one on a plain link."""
    with lab_of(
        seed=3,
        nodes={"a": None, "b": None, "c": None, "d": None, "r": {"kind": "router"}, "s": {"kind": "switch"}},
        links=[
            {"endpoints": ["a", "r"], "rate": "8mbit", "backward": {"rate": "40mbit"}},
            {"endpoints": ["b", "r"], "backward": {"rate": "100kbit"}},
            {"endpoints": ["c", "s"], "rate": "8mbit"},
            ["s", "r"],
            ["d", "r"],
        ],
    ) as lab:
        yield lab


@pytest.fixture
def lab(made: Lab) -> Iterator[Lab]:
    """The lab, with its own plan again after the test."""
    plan = made.plan
    yield made
    made.plan = plan


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer trials, for what is wrong in each of them."""
    monkeypatch.setattr(fidelity, "TRIALS", 2)
    monkeypatch.setattr(trials, "WINDOWS", 2)


def claim(lab: Lab, node: str, forward: Impairment, backward: Impairment | None = None) -> str:
    """Have the plan claim something of ``node``'s link that it does not do, and know no other link; its name."""
    (link,) = lab.plan.links_of(node)
    lying = link.model_copy(update={"forward": forward, "backward": backward or forward})
    lab.plan = Plan.model_validate({**lab.plan.model_dump(), "links": [lying.model_dump()]})
    return link.name


def rate_of(found: Fidelity, source: str) -> float | None:
    """The rate that was seen from ``source``, where only one link was tried."""
    (check,) = [check for check in found.checks if check.source == source]
    return check.rate_seen


@pytest.mark.root
def test_links_that_are_right(lab: Lab) -> None:
    """Every rate is seen in its own direction, also at a switch; nothing counts as dropped by it."""
    recorded = Recorded()
    before = {node: counters(lab, node) for node in ("a", "r")}
    found = check_fidelity(lab, recorder=recorded)
    assert found.reasons == []
    assert found.ok
    rates = {(check.source, check.target): check.rate_seen for check in found.checks if check.rate_wanted}
    for direction, wanted in {
        ("a", "r"): LOW,
        ("r", "a"): HIGH,
        ("r", "b"): 100_000,
        ("c", "s"): LOW,
        ("s", "c"): LOW,
    }.items():
        assert rates.pop(direction) == pytest.approx(wanted, rel=0.06)
    assert rates == {}
    for node, earlier in before.items():
        grown = {name: now.rx_drop - earlier[name].rx_drop for name, now in counters(lab, node).items()}
        assert sum(grown.values()) < 10
    told = [detail for kind, _, detail in recorded.events if kind == "fidelity"]
    assert {detail["link"] for detail in told} == {link.name for link in shaped_links(lab.plan)}
    (whole,) = [detail for kind, _, detail in recorded.events if kind == "fidelity-check"]
    assert (whole["links"], whole["unchecked"], whole["ok"]) == (3, 0, True)
    assert 0 < whole["cost"] < whole["seconds"]


@pytest.mark.root
def test_a_delay_that_is_not_there(lab: Lab, quick: None) -> None:
    """The plan says 20 ms, the link has none: both directions are named. One that says so little is within bounds."""
    name = claim(lab, "d", Impairment(delay_us=20_000))
    wrong = check_fidelity(lab)
    assert not wrong.ok
    assert len(wrong.reasons) == 2
    assert wrong.reasons[0].startswith(f"link {name}, from d to r: delay is 0.")
    assert wrong.reasons[0].endswith("not 20 ms (at most 1 ms off is allowed)")
    claim(lab, "d", Impairment(delay_us=900))
    (check, _) = [check for check in check_fidelity(lab).checks if check.link == name]
    assert check.delay_seen is not None
    assert check.delay_seen > 0
    assert (check.delay_wanted, check.sent, check.received) == (0.0009, 20, 20)


@pytest.mark.root
def test_a_delay_in_one_direction_only(lab: Lab, quick: None) -> None:
    """A direction that is to have no delay is held to that; the other is named."""
    claim(lab, "d", Impairment(delay_us=20_000), Impairment())
    assert ["from d to r" in reason for reason in check_fidelity(lab).reasons] == [True]


@pytest.mark.root
def test_a_rate_that_is_off(lab: Lab, quick: None) -> None:
    """A token bucket changed by hand to 80 %, in one direction: that one is named, with what was seen."""
    claim(lab, "a", Impairment(rate_bps=LOW), Impairment(rate_bps=HIGH))
    change = ["tc", "qdisc", "change", "dev", "eth0", "root", "handle", "7b00:", "tbf", "burst", "3028"]
    lab.exec("a", [*change, "latency", "50ms", "rate", "6400kbit"], check=True)
    try:
        found = check_fidelity(lab)
    finally:
        lab.exec("a", [*change, "latency", "50ms", "rate", "8mbit"], check=True)
    (reason,) = found.reasons
    assert reason.startswith(f"link {lab.plan.links_of('a')[0].name}, from a to r: rate is 6.")
    assert "not 8mbit" in reason
    assert rate_of(found, "a") == pytest.approx(0.8 * LOW, rel=0.06)
    assert rate_of(found, "r") == pytest.approx(HIGH, rel=0.06)


@pytest.mark.root
def test_links_that_are_down_or_gone(lab: Lab, quick: None) -> None:
    claim(lab, "d", Impairment(delay_us=100))
    lab.exec("r", ["ip", "link", "set", "to-d", "down"], check=True)
    down = check_fidelity(lab)
    assert any("a packet cannot be sent" in reason or "came through" in reason for reason in down.reasons)
    lab.exec("r", ["ip", "link", "set", "to-d", "name", "other"], check=True)
    gone = check_fidelity(lab)
    lab.exec("r", ["ip", "link", "set", "other", "name", "to-d"], check=True)
    lab.exec("r", ["ip", "link", "set", "to-d", "up"], check=True)
    assert len([reason for reason in gone.reasons if "it cannot be tried: No such device" in reason]) == 2


@pytest.mark.root
def test_a_sample_within_bounds(lab: Lab) -> None:
    """The seed chooses; what is left out is told; without time nothing is tried, and that is told too."""
    first, second = (check_fidelity(lab, links=1, seconds=0) for _ in range(2))
    assert {check.link for check in first.checks} == {check.link for check in second.checks}
    assert len(first.unchecked) == 2
    assert len({check_fidelity(lab, links=1, seed=seed, seconds=0).unchecked for seed in range(20)}) == 3
    assert [check.notes for check in first.checks if check.rate_wanted] == [["no time was left to try its rate"]] * len(
        [check for check in first.checks if check.rate_wanted]
    )
    assert first.ok


@pytest.mark.root
def test_rates_that_cannot_be_loaded(lab: Lab) -> None:
    name = claim(lab, "d", Impairment(rate_bps=40_000_000_000))
    checks = [check for check in check_fidelity(lab, seconds=0).checks if check.link == name]
    assert [check.notes for check in checks] == [["its rate, 40gbit, is more than can be loaded here"]] * 2


@pytest.mark.root
def test_no_time_is_spent_where_there_is_nothing_to_check(lab: Lab) -> None:
    lab.plan = lab.plan.model_copy(update={"links": tuple(link for link in lab.plan.links if link.a.node == "d")})
    before = time.monotonic()
    found = check_fidelity(lab)
    assert (found.checks, found.unchecked, found.ok) == ((), (), True)
    assert found.seconds <= time.monotonic() - before


def test_bounds_of_a_delay() -> None:
    assert delay_reason(0.020, 0.021) == ""
    assert delay_reason(0.020, 0.0211) == "delay is 21.1 ms, not 20 ms (at most 1 ms off is allowed)"
    assert delay_reason(0.100, 0.098) == ""
    assert delay_reason(0.100, 0.0979) != ""
    assert delay_reason(0.050, 0.054, jitter=0.005, count=16) == ""
    assert delay_reason(0.050, 0.0565, jitter=0.005, count=16) != ""


def test_bounds_of_a_rate() -> None:
    assert rate_reason(8e6, 7.61e6) == ""
    assert rate_reason(8e6, 7.59e6) == "rate is 7.59mbit, not 8mbit (95 % of it; 5 % off is allowed)"
    assert rate_reason(8e6, 8.41e6) != ""
    assert rate_reason(8e6, 8.41e6, grain=50_000) == ""
    assert rate_reason(8e6, 7.3e6, loss=0.1) == ""
    assert rate_reason(8e6, 8.8e6, duplicate=0.1) == ""


@given(st.floats(1e3, 1e11), st.floats(0, 3))
def test_reasons_can_always_be_told(wanted: float, share: float) -> None:
    reason = rate_reason(wanted, wanted * share)
    assert bool(reason) == (not 0.95 <= wanted * share / wanted <= 1.05) or abs(abs(share - 1) - 0.05) < 1e-9


@pytest.mark.root
def test_a_delay_that_is_there(state: Path) -> None:
    """A link that an engine delays, with jitter and a rate: seen in each direction for itself."""
    topology = Topology.model_validate(
        {
            "name": f"delayed-{os.getpid()}",
            "nodes": {"a": None, "b": None},
            "links": [
                {
                    "endpoints": ["a", "b"],
                    "delay": "20ms",
                    "rate": "20mbit",
                    "backward": {"delay": "60ms", "jitter": "5ms"},
                }
            ],
        }
    )
    plan, problems = expand(topology)
    assert problems == []
    found = check_fidelity(up(plan))
    there, back = found.checks
    assert there.delay_seen is not None
    assert back.delay_seen is not None
    # not held to the millisecond: that is the engine's matter, and its own tests' on a machine that may be busy
    assert 0.019 < there.delay_seen < 0.045
    assert 0.054 < back.delay_seen < 0.085
    assert not any("rate" in reason for reason in found.reasons)
