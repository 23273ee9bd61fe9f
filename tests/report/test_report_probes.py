"""Probes and the link check in a report, and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.measure.store import Run
from testbed.report import build_report
from testbed.report.console import summary_table

PROBES = ("probe", "who asks whom", "conditions", "asked", "no answer", "median [95 %]", "90 % within", "repeats")
LINKS = ("link", "direction", "delay wanted", "measured", "rate wanted", "measured", "frames", "verdict", "why")
HOSTILE = "</svg><script>alert('1')</script><img src=x onerror=alert(1)>&amp;$\\frac{x}$ {{7*7}} -->"


def pinged(run: Run, start: float, rtts: list[float], label: str = "a>b", series: str = "ping_rtt") -> None:
    """One value every 0.1 s."""
    run.samples([(run.clock + start + n / 10, series, label, rtt) for n, rtt in enumerate(rtts)])


def shown(run: Run, page: Callable[[Path], Any]) -> Any:
    """The run's report, in which nothing failed."""
    run.close("passed")
    found = page(build_report(run.path))
    assert "could not be made" not in found.prose
    assert "Traceback" not in found.prose
    return found


@pytest.mark.usefixtures("rendered")
def test_medians_by_step(run: Run, page: Callable[[Path], Any]) -> None:
    for repeat in (1, 2):
        at = 10.0 * repeat
        run.event("step", t=run.clock + at, step=f"slow-r{repeat}", edge="start", delay="20ms", repeat=repeat)
        pinged(run, at + 0.5, [0.02] * 9 + [math.nan])
        run.event("step", t=run.clock + at + 5, step=f"slow-r{repeat}", edge="end", delay="20ms", repeat=repeat)
    pinged(run, 50.0, [0.005] * 5)
    pinged(run, 60.0, [8e6, 9e6, math.nan], series="throughput_bps")
    pinged(run, 70.0, [math.nan] * 4, "a>http://b/", "http_total")
    found = shown(run, page)
    assert found.table(*PROBES) == [
        ["ping", "a > b", "delay=20ms", "20", "2 (10 %)", "20.0 ms", "20.0 ms", "2"],
        ["ping", "a > b", "outside of steps", "5", "0", "5.00 ms", "5.00 ms", "1: no conclusion"],
        ["HTTP total", "a > http://b/", "outside of steps", "4", "4 (100 %)", "never", "never", "1: no conclusion"],
        ["throughput", "a > b", "outside of steps", "3", "1 (33.3 %)", "8.50 Mbit/s [8.00, 9.00]", "\u2013",
         "1: no conclusion"],
    ]  # fmt: skip
    figures = {path.stem for path in (run.path / "figures").iterdir()}
    assert {"probe-ping", "probe-http"} <= figures
    assert "probe-throughput" not in figures  # three values need none
    assert "Ping: 25 values, 2 without an answer" in found.prose


def test_single_calls_and_what_measuring_cost(run: Run, page: Callable[[Path], Any]) -> None:
    run.event("probe", "a", probe="http", target="http://b/", started=1.0, cost=0.25, outcome="ok", status=200)
    run.event("probe", "a", probe="path", target="b", cost=0.25, outcome="ok", nodes=["r", "b"])
    run.event("probe", "a", probe="ping", target="b", cost=0.5, sent=3)
    run.sample("sampling_cost", "", 0.125)
    run.event("end", t=run.clock + 10.0)
    found = shown(run, page)
    rows = found.table("time", "probe", "from", "to", "outcome", "")
    assert rows[0] == ["1.000 s", "http", "a", "http://b/", "ok", "status 200"]
    assert rows[1][1:] == ["path", "a", "b", "ok", 'nodes ["r", "b"]']
    assert "Measuring itself used 1.12 s of CPU, 11 % of one processor over the run" in found.prose
    assert "samplers 0.125 s in 1 sample" in found.prose


def test_links_as_they_were_measured(run: Run, page: Callable[[Path], Any]) -> None:
    right = {"target": "core", "ok": True, "delay_wanted": 0.02, "delay_seen": 0.0201, "sent": 20, "received": 19}
    run.event("fidelity", "a", link="a--core", **right, rate_wanted=None, rate_seen=None, reasons=[], notes=[])
    run.event("fidelity", "core", link="a--core", target="a", ok=False, rate_wanted=8_000_000, rate_seen=4_000_000,
              reasons=["half of it"], notes=["busy"])  # fmt: skip
    run.event("fidelity-check", links=1, unchecked=3, ok=False, seconds=1.5, cost=0.25)
    found = shown(run, page)
    assert found.table(*LINKS) == [
        ["a--core", "a > core", "20.0 ms", "20.1 ms", "\u2013", "\u2013", "19 of 20", "right", ""],
        [
            "a--core",
            "core > a",
            "\u2013",
            "\u2013",
            "8.00 Mbit/s",
            "4.00 Mbit/s",
            "\u2013",
            "WRONG",
            "half of it; busy",
        ],
    ]
    assert "2 directions tried, 1 wrong." in found.prose
    assert "3 links with a delay or a rate not tried." in found.prose


@pytest.mark.usefixtures("rendered")
def test_names_cannot_break_out(run: Run, page: Callable[[Path], Any]) -> None:
    for series in ("ping_rtt", "tcp_connect", "http_total", "dns_seconds", "throughput_bps"):
        pinged(run, 1.0, [0.1, math.inf, -1.0, math.nan, 0.0, 5.0], HOSTILE, series)
    run.event("probe", HOSTILE, probe=HOSTILE, target=HOSTILE, outcome=HOSTILE, **{HOSTILE: HOSTILE})
    run.event("fidelity", HOSTILE, link=HOSTILE, target=HOSTILE, reasons=[HOSTILE])
    found = shown(run, page)
    assert not [tag for tag, _ in found.tags if tag in ("script", "img")]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]


@pytest.mark.parametrize("outage", [False, True])
def test_the_table_on_the_terminal(run: Run, outage: bool) -> None:
    pinged(run, 1.0, [0.01] * 5)
    if outage:
        pinged(run, 1.0, [0.01, math.nan, math.nan, 0.01], series="answer_seconds")
    run.close("passed")
    console = Console(width=200)
    with console.capture() as captured:
        console.print(summary_table(run.path))
    assert ("out of service, a repeat" in captured.get()) is outage
    assert ("90 % within" in captured.get()) is not outage
