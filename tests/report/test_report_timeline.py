"""Faults, the wire and availability in a report: what stands in the tables, and that odd data never breaks it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.measure.reader import Event, RunReader
from testbed.measure.store import Run
from testbed.plan.types import Plan
from testbed.report import build_report
from testbed.report.history import courses, finite, link_changes, wire_stops
from testbed.report.timeline_figures import lanes
from testbed.report.watches import watches

HOSTILE = "</svg><script>alert('1')</script><img src=x onerror=alert(1)>&amp;$\\frac{x}$ {{7*7}} -->"
FAULTS = ("fault", "kind", "about", "start", "verified after", "held for", "healed at", "what was seen")
SEEN = ("who asks whom", "conditions", "asked", "lost", "outages", "out of service, a repeat", "repeats")
OUTAGES = ("who asks whom", "step", "start", "end", "length", "at least", "at most", "questions lost")


class Told:
    """A run that is told things at times of its own clock."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def event(self, t: float, kind: str, node: str = "", **detail: Any) -> None:
        """At ``t`` seconds after the run's start."""
        self.run.event(kind, node, t=self.run.clock + t, **detail)

    def fault(self, t: float, name: str, phase: str, node: str = "", **detail: Any) -> None:
        """A step of the fault ``name``, such as ``link-down-1``."""
        self.event(t, "fault", node, fault=name.rpartition("-")[0], id=name, phase=phase, **detail)

    def answers(self, label: str, values: dict[float, float]) -> None:
        """Answers of an availability probe by the time of the question; NaN for none."""
        self.run.samples([(self.run.clock + t, "answer_seconds", label, value) for t, value in values.items()])

    def watched(self, source: str, target: str, lost: range, *, count: int = 100, told: bool = True) -> None:
        """An availability probe from 1.0 s on, ten questions a second, those numbered in ``lost`` without answer."""
        self.answers(f"{source}>{target}", {1 + n / 10: math.nan if n in lost else 0.002 for n in range(count)})
        end = 1 + count / 10
        if told:
            self.event(
                end, "probe", source, probe="availability", target=target, started=1.0, ended=end, cost=0.1, by="tcp",
                asked=count, lost=len(lost), missed=0,
            )  # fmt: skip

    def page(self, page: Callable[[Path], Any], status: str = "passed") -> Any:
        """Its report, in which no section and no figure failed."""
        self.run.close(status)
        shown = page(build_report(self.run.path))
        assert "could not be made" not in shown.prose
        assert "Traceback" not in shown.prose
        return shown


@pytest.fixture
def told(run: Run) -> Told:
    return Told(run)


@pytest.mark.usefixtures("rendered")
def test_faults_and_outages_with_their_uncertainty(told: Told, page: Callable[[Path], Any]) -> None:
    told.event(0.5, "step", step="down-r1", edge="start", fault="down", repeat=1)
    told.fault(4.0, "link-down-1", "start", settings={"link": ["a", "core"]})
    told.fault(4.25, "link-down-1", "verified", seen="both interfaces are down")
    told.fault(7.0, "link-down-1", "healed", seen="both have a carrier")
    told.fault(8.0, "kill-2", "start", "web", settings={"node": "web", "service": "http"})
    told.fault(8.1, "kill-2", "failed", "web", message="it runs still")
    told.fault(8.2, "kill-2", "healed", "web")
    told.watched("a", "b:80", range(30, 60))
    told.event(
        11.1, "outage", "a", target="b:80", start=3.95, end=6.95, start_range=[3.9, 4.0], end_range=[6.9, 7.0],
        seconds=3.0, shortest=2.9, longest=3.1, lost=30,
    )  # fmt: skip
    told.event(11.2, "step", step="down-r1", edge="end", fault="down", repeat=1)
    shown = told.page(page)
    assert "Faults and availability" in shown.text
    assert shown.table(*FAULTS) == [
        [
            "link-down-1",
            "link-down",
            "a\u2013core",
            "4.000 s",
            "0.250 s",
            "2.75 s",
            "7.000 s",
            "both interfaces are down",
        ],
        ["kill-2", "kill", "web, http", "8.000 s", "did not take", "\u2013", "8.200 s", "it runs still"],
    ]
    assert "Faults (2): 1 verified, 1 did not take, 0 not healed within the run." in shown.prose
    assert shown.table(*SEEN) == [
        ["a > b:80", "fault=down", "100", "30 (30 %)", "1", "3.00 s [2.90, 3.10]", "1: no conclusion"]
    ]
    assert shown.table(*OUTAGES) == [
        ["a > b:80", "down-r1", "3.950 \u00b1 0.050 s", "6.950 \u00b1 0.050 s", "3.00 s", "2.90 s", "3.10 s", "30"]
    ]
    assert (told.run.path / "figures" / "timeline.svg").exists()
    assert "one repeat: no conclusion" in shown.prose


def test_repeats_have_an_interval(told: Told, page: Callable[[Path], Any]) -> None:
    for repeat, seconds in ((1, 1.0), (2, 2.0)):
        at = 10.0 * repeat
        told.event(at, "step", step=f"down-r{repeat}", edge="start", fault="down", repeat=repeat)
        told.answers("a>b", {at + n / 10: 0.001 for n in range(50)})
        told.event(at + 6, "outage", "a", target="b", start=at + 1, seconds=seconds, end=at + 1 + seconds, lost=10)
        told.event(at + 6, "step", step=f"down-r{repeat}", edge="end", fault="down", repeat=repeat)
    (row,) = told.page(page).table(*SEEN)
    assert row == ["a > b", "fault=down", "100", "0", "2", "1.50 s [0, 7.85]", "2"]


def test_a_killed_run_shows_what_there_is(tmp_path: Path, page: Callable[[Path], Any]) -> None:
    """The probe never told its outages, the fault was never healed, the step never ended."""
    told = Told(Run.create(tmp_path, "killed", Plan(name="x"), seed=1))
    told.event(0.5, "step", step="down", edge="start")
    told.fault(3.0, "pause-1", "start", "b", settings={"node": "b"})
    told.fault(3.1, "pause-1", "verified", "b", seen="state T")
    told.watched("a", "b", range(20, 50), told=False)
    told.event(11.5, "note")
    told.run.update(writer={})  # as if the writer were gone
    shown = page(build_report(told.run.path))
    assert "could not be made" not in shown.prose
    assert "This run was killed" in shown.prose
    ((*_, healed, _),) = shown.table(*FAULTS)
    assert healed == "not healed"
    ((_, step, start, _, _, _, _, lost),) = shown.table(*OUTAGES)
    assert (step, start[:5], lost) == ("down", "2.951", "30")
    assert "1 probe cut with the run." in shown.prose
    told.run.close("failed")


@pytest.mark.usefixtures("rendered")
def test_the_wire_and_changed_links(told: Told, page: Callable[[Path], Any]) -> None:
    told.event(1.0, "wire-started", pid=1)
    told.event(2.0, "wire-died", pid=1, how="signal 9")
    told.event(2.2, "wire-restarted", pid=2)
    told.event(3.0, "wire-hung", pid=2, how="no answer")
    told.event(4.0, "link", link="a--b", interrupted=0.004)
    shown = told.page(page)
    assert shown.table("died", "back after", "how") == [
        ["2.000 s", "200 ms", "signal 9"],
        ["3.000 s", "\u2013", "no answer"],
    ]
    assert (told.run.path / "figures" / "timeline.png").exists()


def test_a_run_without_any_of_it_has_no_such_section(told: Told, page: Callable[[Path], Any]) -> None:
    told.event(1.0, "link", link="a--b")
    shown = told.page(page)
    assert not {"Faults", "Availability", "Faults and availability", "Probes", "Links as measured"} & set(shown.text)


@pytest.mark.usefixtures("rendered")
def test_names_cannot_break_out(told: Told, page: Callable[[Path], Any]) -> None:
    told.event(0.1, "step", step=HOSTILE, edge="start", **{HOSTILE: HOSTILE})
    told.event(1.0, "fault", HOSTILE, fault=HOSTILE, id=HOSTILE, phase="start", parent=HOSTILE,
               settings={"link": [HOSTILE, 1], "groups": [[HOSTILE], HOSTILE], "target": HOSTILE})  # fmt: skip
    told.event(1.5, "fault", HOSTILE, fault=HOSTILE, id=HOSTILE, phase="failed", message=HOSTILE)
    told.event(1.6, "fault", HOSTILE, fault=HOSTILE, id=HOSTILE, phase="not-healed", message=HOSTILE)
    told.event(2.0, "wire-died", how=HOSTILE)
    told.event(2.0, "link", link=HOSTILE)
    told.watched(HOSTILE, HOSTILE, range(3, 9))
    told.event(2.5, "outage", HOSTILE, target=HOSTILE, start=1.3, seconds=1)
    shown = told.page(page)
    assert not [tag for tag, _ in shown.tags if tag in ("script", "img")]
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert shown.table(*FAULTS)[0][1] == HOSTILE
    assert "\\frac" in shown.prose


@pytest.mark.usefixtures("rendered")
def test_many_faults_and_answers_stay_readable(told: Told, page: Callable[[Path], Any]) -> None:
    for number in range(500):
        told.fault(number / 10, f"pause-{number}", "start", f"n{number % 40}", settings={})
        told.fault(number / 10 + 0.05, f"pause-{number}", "healed")
    told.answers("a>b", {number / 1000: math.nan if number % 7 == 0 else 0.001 for number in range(6_000)})
    started = time.monotonic()
    shown = told.page(page)
    assert time.monotonic() - started < 60
    assert "the first 24 of 40 lanes" in shown.prose
    assert "Faults (the first 400 of 500)" in shown.prose
    assert (told.run.path / "figures" / "timeline.svg").stat().st_size < 1_000_000


ODD = st.one_of(
    st.none(), st.floats(), st.integers(), st.booleans(), st.text(max_size=5), st.lists(st.floats(), max_size=3)
)
WORDS = st.sampled_from(
    ["a", "", "pause-1", "b>c", "availability", "start", "verified", "failed", "healed", "not-healed"]
)
KEYS = (
    *("fault", "id", "phase", "seen", "message", "settings", "parent", "target", "probe", "started", "ended", "by"),
    *("missed", "start", "end", "start_range", "end_range", "seconds", "shortest", "longest", "lost", "link", "cost"),
    *("interrupted", "how", "step", "edge", "ok", "delay_wanted", "delay_seen", "sent", "received", "rate_seen"),
    *("reasons", "notes", "outcome"),
)
EVENTS = st.tuples(
    st.floats(-5, 50),
    st.sampled_from(
        ["fault", "outage", "probe", "wire-died", "wire-restarted", "link", "step", "fidelity", "timeline"]
    ),
    WORDS,
    st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(WORDS, ODD),
    ),
)
SAMPLES = st.tuples(
    st.floats(-5, 50),
    st.sampled_from(["answer_seconds", "ping_rtt", "http_total", "throughput_bps", "sampling_cost"]),
    st.sampled_from(["a>b", "", "a", ">"]),
    st.floats(),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, max_size=12), samples=st.lists(SAMPLES, max_size=30))
def test_whatever_a_run_holds_there_is_a_report(
    tmp_path_factory: pytest.TempPathFactory, page: Callable[[Path], Any], events: list[Any], samples: list[Any]
) -> None:
    told = Told(Run.create(tmp_path_factory.mktemp("odd"), "odd", Plan(name="x"), seed=1))
    for t, kind, node, detail in events:
        if kind == "step":
            detail = {key: value for key, value in detail.items() if key in ("step", "edge")}
        told.event(t, kind, node, **detail)
    told.run.samples([(told.run.clock + t, *rest) for t, *rest in samples])
    told.page(page)


def test_courses_survive_missing_events() -> None:
    def event(t: float, phase: str, **detail: Any) -> Event:
        return Event(0, t, "fault", "", {"id": "x-1", "fault": "x", "phase": phase, **detail})

    (lone,) = courses([event(5.0, "healed")])
    assert (lone.began, lone.ended(9.0), lone.start) == (0.0, 5.0, None)
    twice = courses([event(1.0, "start"), event(2.0, "healed"), event(3.0, "start")])
    assert [(one.began, one.ended(9.0)) for one in twice] == [(1.0, 2.0), (3.0, 9.0)]
    assert [len(lane.courses) for lane in lanes(twice, 9.0)] == [2]
    overlapping = courses([event(1.0, "start"), event(1.5, "start")])
    assert [len(lane.courses) for lane in lanes(overlapping, 9.0)] == [1, 1]


def test_numbers_and_the_wire() -> None:
    assert [finite(value) for value in (1, 2.5, math.nan, math.inf, True, "3", None, 10**400)] == [1, 2.5, *[None] * 6]
    died, back = Event(0, 1.0, "wire-died", "", {}), Event(0, 2.0, "wire-restarted", "", {})
    assert [(stop.start, stop.end, stop.why) for stop in wire_stops([back, died, died, back])] == [
        (1.0, None, "died"),
        (1.0, 2.0, "died"),
    ]
    assert link_changes([Event(0, 1.0, "link", "", {"link": "x", "interrupted": "?"})])[0].interrupted is None


def test_outages_belong_to_the_call_that_saw_them(told: Told) -> None:
    told.answers("a>b", dict.fromkeys((1.0, 2.0, 3.0, 10.0), 0.001))
    for started, ended in ((1.0, 2.5), (3.0, 4.0)):
        told.event(ended, "probe", "a", probe="availability", target="b", started=started, ended=ended)
    told.event(4.0, "outage", "a", target="b", start=3.5, seconds=0.1)
    told.event(4.0, "outage", "a", target="c", start=3.5, seconds=0.1)
    told.run.close("passed")
    found, loose = watches(RunReader(told.run.path))
    assert [(len(watch.samples), len(watch.gaps), watch.finished) for watch in found] == [
        (2, 0, True),
        (1, 1, True),
        (1, 0, False),
    ]
    assert [gap.label for gap in loose] == ["a>c"]
