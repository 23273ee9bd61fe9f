"""The onion scenarios in small, on real networks: what they record and report. No time is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import the_run

from testbed.lab.down import running
from testbed.measure.reader import RunReader
from testbed.pool.report.onion import EVENT, KILLED, WRONG
from testbed.report.console import summary_table
from testbed.scenario import run

pytestmark = [pytest.mark.root, pytest.mark.tor]

SMALL = Path(__file__).parent / "small.yaml"


@pytest.fixture
def recorded(state: Path, kept_networks: Path, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Runs a scenario; the run that it recorded, which passed (valid or not: the machine may be busy)."""
    (state / "warm").symlink_to(kept_networks)

    def start(name: str, topology: Path, **parameters: str) -> RunReader:
        outcome = run(name, topology=topology, runtime="process", parameters=parameters, runs=tmp_path / "runs")
        assert running() == []
        return the_run(outcome)

    return start


def shown(found: RunReader) -> set[str]:
    """The figures of a run's report."""
    return {path.stem for path in (found.path / "figures").glob("*.svg")}


def heads(found: RunReader) -> list[str]:
    """The columns of the table that the terminal shows."""
    return [str(column.header) for column in summary_table(found.path).columns]


def test_failover(recorded) -> None:  # type: ignore[no-untyped-def]
    """The instance that served most is ended; whom it had served logs why it takes long; the others serve on."""
    found = recorded("onion_failover", SMALL, instances="3", signal="SIGKILL", seconds="8s", limit="6s", pause="200ms")
    (step,) = found.steps()
    assert step.name == "n3-sigkill-5s-r1"
    assert step.complete
    assert step.detail["n"] == 3
    assert step.detail["expect_failures"] is True
    (ended,) = found.events("moment")
    assert ended.node in step.detail["nodes"]
    got = found.events("download")
    before = [event.detail["instance"] for event in got if event.detail["outcome"] == "ok" and event.t < ended.t]
    assert ended.node in before
    later = [event for event in got if event.detail["outcome"] == "ok" and event.detail["started"] > ended.t]
    assert ended.node not in {event.detail["instance"] for event in later}
    told = {event.detail["what"] for event in found.events("introduction")}
    assert told & {"nack", "stalled"}, "clients of the dead instance meet introduction points that refuse or stall"
    assert all(event.t >= ended.t - 0.001 for event in found.events("introduction"))
    assert len({event.node for event in found.events("hsdir")}) == 6
    assert heads(found)[:4] == ["N", "signal", "HSDirs", "affected"]
    assert shown(found) >= {"recovery", "recovery-courses", "taken-over"}
    assert (found.path / "logs" / "client1-introductions.log").stat().st_size > 0


def test_late_starter(recorded) -> None:  # type: ignore[no-untyped-def]
    """The late instance has every HSDir, dies, and a survivor that publishes has them then."""
    found = recorded(
        "onion_late_starter",
        SMALL,
        instances="2",
        seconds="3s",
        republish="3s",
        limit="3s",
        pause="300ms",
        every="700ms",
    )
    (step,) = found.steps()
    assert step.name == "n2-sigkill-r1"
    moments = {event.detail["what"]: event for event in found.events("moment")}
    assert list(moments) == ["ended", "republish", "published"]
    assert moments["ended"].node == "shop2"
    assert moments["republish"].node == moments["published"].node == "shop1"
    assert moments["republish"].t - moments["ended"].t >= 3
    held = found.events("hsdir")
    assert {event.detail["instance"] for event in held if event.t < moments["republish"].t} == {"shop2"}
    last = {event.node: event.detail["instance"] for event in held}  # one before it may have been under way meanwhile
    assert set(last.values()) == {"shop1"}
    fresh = [event for event in found.events("fresh") if event.detail["outcome"] == "ok"]
    assert {event.detail["instance"] for event in fresh if event.t < moments["ended"].t} <= {"shop2"}
    later = [event for event in fresh if event.detail["started"] > moments["ended"].t]
    assert {event.detail["instance"] for event in later} <= {"shop1"}
    assert not [event for event in later if event.t < moments["republish"].t], "the hole"
    assert heads(found)[2:4] == ["republish", "hole"]
    assert shown(found) >= {"outages", f"course-{step.name}"}


def test_takeover(recorded) -> None:  # type: ignore[no-untyped-def]
    """One serves and dies; two with its key take over; their revision counters are recorded."""
    found = recorded("onion_takeover", SMALL, instances="2", seconds="3s", limit="4s", pause="300ms", every="700ms")
    (step,) = found.steps()
    assert step.name == "n2-simultaneous-sigkill-r1"
    assert step.detail["holder"] == "shop3"
    moments = {event.detail["what"]: event.t for event in found.events("moment")}
    held = found.events("hsdir")
    first = {event.node: event.detail for event in reversed(held)}
    last = {event.node: event.detail for event in held}
    assert {detail["instance"] for detail in first.values()} == {"shop3"}
    assert {detail["instance"] for detail in last.values()} <= {"shop1", "shop2"}
    assert all(last[name]["revision"] > first[name]["revision"] for name in last)
    published = [event for event in found.events("onion_published") if event.t > moments["ended"]]
    assert sorted(event.node for event in published) == ["shop1", "shop2"]
    assert heads(found)[:3] == ["N", "publish", "dead time"]
    assert shown(found) >= {"outages", f"course-{step.name}"}


def test_hsdir_loss(recorded) -> None:  # type: ignore[no-untyped-def]
    """Fresh clients with nobody dead, another relay dead, an HSDir dead, and that one back without descriptors."""
    found = recorded("onion_hsdir_loss", SMALL, instances="2", dead="1", fresh="6", parallel="6", timeout="10s")
    steps = {step.detail["what"]: step for step in found.steps()}
    assert list(steps) == ["none", "others", "hsdirs", "back"]
    assert [step.name for step in steps.values()] == ["none1-r1", "others1-r1", "hsdirs1-r1", "back1-r1"]
    ended, back = found.events("ended"), found.events("back")
    assert [event.node for event in ended] == [event.node for event in back]
    asked = {event.node for event in found.events("hsdir")}
    assert ended[0].node not in asked
    assert ended[1].node in asked or found.events("hsdir-unread")
    for what in ("none", "others", "back"):
        fresh = [event for event in found.events("fresh") if event.detail["step"] == steps[what].name]
        assert len(fresh) == 6
        assert any(event.detail["outcome"] == "ok" for event in fresh), what
    before, after = (
        {event.node: event.detail["revision"] for event in found.events("hsdir") if event.detail["step"] == step.name}
        for step in (steps["none"], steps["back"])
    )
    victim = ended[1].node
    if before.keys() == after.keys() and all(after[name] == before[name] for name in before if name != victim):
        # not where an instance has lost an introduction point and so has published again, nor without an answer
        assert not after or after[victim] is None, "an HSDir that comes back has no descriptor"
    assert heads(found)[:3] == ["relays", "state", "ok / failed"]
    assert "hsdir-loss" in shown(found)


def test_hybrid(recorded) -> None:  # type: ignore[no-untyped-def]
    """Three instances by mixed descriptors: every one of them serves some fresh client."""
    found = recorded("onion_hybrid_60", SMALL, instances="3", fresh="20", most="140")
    (step,) = found.steps()
    assert step.name == "n3-hybrid-r1"
    assert step.detail["nodes"] == ["shop1", "shop2", "shop3"]
    served = {event.detail["instance"] for event in found.events("fresh") if event.detail["outcome"] == "ok"}
    assert served == {"shop1", "shop2", "shop3"}
    assert heads(found)[:4] == ["publish", "N", "ok / failed", "reached"]
    assert shown(found) >= {"coverage", "coverage-counts"}


def test_pool(recorded) -> None:  # type: ignore[no-untyped-def]
    """Instances take turns, one of them is killed in its turn, no byte is wrong, and who has ended serves nobody."""
    parameters = {"overlap": "1s", "leave": "500ms", "kill": "2s", "limit": "5s", "pause": "300ms"}
    found = recorded("onion_pool", SMALL, speed="20", seconds="26s", **parameters)
    moves = found.events(EVENT)
    turns = [("shop1", "shop2"), ("shop2", "shop3"), ("shop3", "shop1")]
    assert len(moves) >= 2
    assert [(move.detail["leaving"], move.node) for move in moves[:3]] == turns[: len(moves)]
    (killed,) = found.events(KILLED)
    assert [move.detail["leaving"] for move in moves if move.detail["cause"] == "died"] == [killed.node]
    asked = found.events("download") + found.events("fresh")
    assert not {event.detail["outcome"] for event in asked} & WRONG
    (first, second) = moves[:2]
    gone = first.t + first.detail["leave"]
    between = [event for event in asked if gone < event.detail["started"] and event.t < second.t]
    served = {event.detail["instance"] for event in between if event.detail["outcome"] == "ok"}
    assert "shop1" not in served
    assert "Onion service that rotates" in (found.path / "report.html").read_text()
    assert heads(found)[3:5] == ["served again, s", "late"]
