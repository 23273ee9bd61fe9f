"""Reports of the scenarios with instances that die and come: from events written by hand to what is said and drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.measure.reader import RunReader
from testbed.measure.stats import Time
from testbed.measure.store import Run
from testbed.plan.types import Node, Plan
from testbed.report import build_report
from testbed.report.blocks import Figure, Section, Table
from testbed.tor.report import sections
from testbed.tor.report.holes import holes
from testbed.tor.report.recovery import failovers
from testbed.tor.report.trials import quantile, within

NODES = ["shop1", "shop2", "shop3"]


class Story:
    """Writes events at seconds after the run's start."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def tell(self, kind: str, t: float, node: str = "", **detail: Any) -> None:
        """One event."""
        self.run.event(kind, node, t=self.run.clock + t, **detail)

    def step(self, name: str, start: float, end: float, **detail: Any) -> None:
        """A step's edges."""
        self.tell("step", start, step=name, edge="start", **detail)
        self.tell("step", end, step=name, edge="end", **detail)

    def download(
        self, step: str, client: str, started: float, ended: float, instance: str = "", outcome: str = "ok"
    ) -> None:
        """One request of a client."""
        good = ended if outcome == "ok" else None
        detail = {"started": started, "first_byte": good, "last_byte": good, "ended": ended, "bytes": 1}
        self.tell("download", ended, client, step=step, outcome=outcome, instance=instance, **detail)

    def fresh(self, step: str, started: float, ended: float, instance: str = "", outcome: str = "ok") -> None:
        """One fresh client."""
        good = ended if outcome == "ok" else None
        detail = {"number": 1, "started": started, "ready": started, "first_byte": good, "last_byte": good}
        self.tell("fresh", ended, "client1", step=step, outcome=outcome, instance=instance, ended=ended, **detail)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A run of three instances that is still going on."""
    plan = Plan(name="three", nodes=tuple(Node(name=name, subsystem="onions", role="shop") for name in NODES))
    run = Run.create(tmp_path, "by_hand", plan, seed=1)
    yield Story(run)
    run.close("passed")


def found(story: Story) -> list[Section]:
    """The sections made of what has been told so far."""
    return sections(RunReader(story.run.path))


def tables(section: Section) -> list[Table]:
    """A section's tables."""
    return [block for block in section.blocks if isinstance(block, Table)]


def figures(story: Story) -> set[str]:
    """The figures that the whole report has as files; none of its sections failed."""
    text = build_report(story.run.path).read_text()
    assert "Traceback" not in text
    return {path.stem for path in (story.run.path / "figures").glob("*.svg")}


def test_other_runs_have_no_such_sections(story: Story) -> None:
    """Only steps of these experiments make sections."""
    story.step("one", 1, 2)
    story.step("two", 3, 4, experiment="something else")
    assert found(story) == []


@pytest.fixture
def failover(story: Story) -> Story:
    """shop2 ends at 30: client1 was on it and stalls, client2 is refused and loses a request; client3 is not on it."""
    step = "n3-sigkill-r1"
    story.step(
        step, 10, 80, experiment="failover", n=3, nodes=NODES, signal="SIGKILL", traffic="5s", repeat=1,
        expect_failures=True,
    )  # fmt: skip
    story.tell("moment", 30, "shop2", step=step, what="ended")
    for client, instance in (("client1", "shop2"), ("client2", "shop2"), ("client3", "shop1")):
        story.download(step, client, 20, 21, instance)
    story.download(step, "client1", 29, 64, "shop1")  # under way at the end, and served by another one after a stall
    story.download(step, "client1", 65, 66, "shop1")
    story.tell("introduction", 31, "client1", step=step, what="stalled", relay="", seconds=31.5)
    story.download(step, "client2", 31, 32, outcome="socks-4")
    story.tell("introduction", 31.2, "client2", step=step, what="nack", relay="A", seconds=0)
    story.tell("introduction", 31.5, "client2", step=step, what="useless", relay="", seconds=0)
    story.download(step, "client2", 32, 33, "shop3")
    story.tell("introduction", 40, "client2", step=step, what="nack", relay="A", seconds=0)  # too late to matter
    story.download(step, "client3", 31, 32, "shop1")
    for t, hsdir, instance in ((11, "relay1", "shop1"), (11, "relay2", "shop2"), (40, "relay1", "shop2")):
        story.tell("hsdir", t, hsdir, step=step, instance=instance, revision=1)
    return story


def test_recovery_of_each_client(failover: Story) -> None:
    """Who was affected, when it was served again, and what it logged until then."""
    (condition,) = failovers(RunReader(failover.run.path))
    (trial,) = condition.failovers
    one, two, three = trial.recoveries
    assert (one.affected, one.recovered, len(one.stalls), one.stalled) == (True, Time(36.0), 1, 31.5)
    assert (two.affected, two.recovered, two.lost) == (True, Time(3.0), 1)
    assert (two.count("nack"), two.count("useless")) == (1, 1)
    assert (three.affected, three.recovered) == (False, Time(2.0))
    assert trial.served_before == {"shop1": 1, "shop2": 2, "shop3": 0}
    assert trial.served_after == {"shop1": 2, "shop2": 0, "shop3": 1}
    assert trial.lost == 1


def test_failover_section(failover: Story) -> None:
    """One table for the terminal, published beside measured, the modes explained, and three figures."""
    (section,) = found(failover)
    assert section.title == "Failover"
    result, compared, modes, _ = tables(section)
    assert result.console
    assert result.rows[0][:4] == ("3", "SIGKILL, traffic 5s", "1 of 2", "2 of 3")
    assert result.rows[0][7] == "1.00"
    assert compared.rows[0][1:3] == ("the others take over quickly", "2 of 2 served again, median 19.5 s")
    assert [row[:3] for row in modes.rows] == [("0", "1", "3.00 s"), ("1", "1", "36.0 s")]
    assert figures(failover) >= {"recovery", "recovery-courses"}


def test_a_client_that_is_never_served_again(failover: Story) -> None:
    """It counts as longer than what was seen of it, and is not left out."""
    step = "n3-sigkill-r1"
    failover.download(step, "client9", 20, 21, "shop2")
    failover.download(step, "client9", 31, 70, outcome="timeout")
    (condition,) = failovers(RunReader(failover.run.path))
    late = condition.failovers[0].recoveries[-1]
    assert late.recovered == Time(40.0, observed=False)
    assert quantile(condition.pool, 1.0) == math.inf
    assert within(condition.pool, 5.0) == pytest.approx(1 / 3)
    (section,) = found(failover)
    assert "1 not in time" not in str(tables(section)[2].rows[1])
    assert "1 not in time" in str(tables(section)[2].rows[0])
    figures(failover)


def tell_hole(story: Story, step: str, experiment: str, repeat: int = 1) -> None:
    """shop3 ends at 20, shop1 publishes at 50; a fresh client finds it at 54, client1 at 60, client2 not at all."""
    detail = {"signal": "SIGKILL", "publish": "simultaneous", "expect_failures": True}
    story.step(step, 10, 80, experiment=experiment, n=3, nodes=NODES, repeat=repeat, **detail)
    story.tell("moment", 20, "shop3", step=step, what="ended")
    story.tell("moment", 50, "shop1", step=step, what="republish")
    story.tell("moment", 53, "shop1", step=step, what="published")
    story.tell("onion_published", 53, "shop1", acknowledged=["relay1", "relay2"], refused={"relay3": "UPLOAD_REJECTED"})
    for client in ("client1", "client2"):
        story.download(step, client, 18, 19, "shop3")
    story.download(step, "client1", 21, 51, outcome="socks-4")
    story.download(step, "client1", 52, 60, "shop1")
    story.download(step, "client2", 21, 79, outcome="unfinished")
    story.fresh(step, 18, 19.5, "shop3")
    story.fresh(step, 22, 30, outcome="socks-4")
    story.fresh(step, 52, 54, "shop1")
    story.fresh(step, 60, 80, outcome="unfinished")
    for t, instance, revision in ((12, "shop3", 30), (40, "shop3", 30), (55, "shop1", 31)):
        story.tell("hsdir", t, "relay1", step=step, instance=instance, revision=revision)


def test_the_hole_as_each_saw_it(story: Story) -> None:
    """Last success before and first after: of each client, of fresh ones, and of anybody."""
    tell_hole(story, "n3-sigkill-r1", "late-starter")
    (condition,) = holes(RunReader(story.run.path), "late-starter", "signal")
    (hole,) = condition.repeats
    assert (hole.republish, hole.published) == (30, 33)
    one, two = hole.clients
    assert (one.last, one.first, one.length) == (-1, 40, Time(41))
    assert (two.last, two.first) == (-1, None)
    assert (hole.fresh.last, hole.fresh.first) == (-0.5, 34)
    assert hole.service.length == Time(34.5)
    assert (hole.acknowledged, hole.refused) == (2, 1)
    assert hole.holders == {"relay1": "shop1"}
    assert hole.revisions == {31}
    assert hole.lost == 1
    assert condition.clients.value == 40  # half of two clients, the other was not served in time


@pytest.mark.parametrize(
    ("experiment", "title", "head"),
    [("late-starter", "Late starter", "hole"), ("takeover", "Takeover", "dead time")],
)
def test_outage_sections(story: Story, experiment: str, title: str, head: str) -> None:
    """The table with its spread over repeats, and a bar a trial and one trial in full as figures."""
    tell_hole(story, "first-r1", experiment)
    (section,) = found(story)
    assert section.title == title
    result = tables(section)[0]
    assert result.console
    assert result.rows[0][list(result.head).index(head)] == "34.5 s"
    assert figures(story) >= {"outages", "course-first-r1"}


def test_a_trial_that_was_cut_before_its_end(story: Story) -> None:
    """A step without the instance's end makes no row and no error."""
    story.step("n3-sigkill-r1", 10, 12, experiment="late-starter", n=3, nodes=NODES, signal="SIGKILL")
    story.step("n2-sigkill-r1", 13, 14, experiment="failover", n=2, nodes=NODES[:2], signal="SIGKILL")
    assert found(story) == []


def test_hsdir_loss_section(story: Story) -> None:
    """Fresh clients by state, in the order of a trial, with how many HSDirs held a descriptor."""
    for place, what in enumerate(("none", "others", "hsdirs", "back")):
        step, at = f"{what}1-r1", 10.0 * place
        story.step(step, at, at + 9, experiment="hsdir-loss", what=what, dead=1, repeat=1, nodes=NODES)
        story.fresh(step, at, at + 1 + place, "shop1")
        story.fresh(step, at, at + 8, outcome="timeout" if what == "hsdirs" else "ok", instance="shop2")
        if what in ("none", "back"):
            for hsdir in ("relay1", "relay2"):
                empty = what == "back" and hsdir == "relay2"
                story.tell("hsdir", at, hsdir, step=step, instance="" if empty else "shop1", revision=None)
    (section,) = found(story)
    (table,) = tables(section)
    assert table.console
    assert [row[1:3] for row in table.rows] == [
        ("nobody dead", "2 / 0"),
        ("other relays dead", "2 / 0"),
        ("HSDirs dead", "1 / 1"),
        ("HSDirs back, empty", "2 / 0"),
    ]
    assert [row[6] for row in table.rows] == ["2 of 2", "\u2013", "\u2013", "1 of 2"]
    assert table.rows[2][5] == "never"
    drawn: list[Figure] = [block for block in section.blocks if isinstance(block, Figure)]
    assert [figure.name for figure in drawn] == ["hsdir-loss"]
    assert "hsdir-loss" in figures(story)


def test_coverage_section(story: Story) -> None:
    """Instances reached, after how many clients all were, and what even chance would give."""
    story.step("n3-hybrid-r1", 10, 30, experiment="coverage", n=3, nodes=NODES, publish="hybrid", repeat=1)
    for place, name in enumerate(["shop1", "shop1", "", "shop2", "shop3", "shop1"]):
        story.fresh("n3-hybrid-r1", 10 + place, 10.5 + place, name, "ok" if name else "socks-4")
    (section,) = found(story)
    table = tables(section)[0]
    assert table.console
    assert table.rows[0][:6] == ("hybrid", "3", "5 / 1", "3.00", "5", "5.50")
    assert tables(section)[1].rows[0][1:3] == ("60 proposed, not run", "3 of 3")
    assert figures(story) >= {"coverage", "coverage-counts"}


def test_split_section(story: Story) -> None:
    """Fresh clients by way to publish: Jain's index over repeats, shares, and the load on introduction points."""
    for way, served in (("naive", ["shop3"] * 6), ("distributor", ["shop1", "shop2", "shop3"] * 2)):
        for repeat in (1, 2):
            name = f"split-n3-{way}-r{repeat}"
            start = 100.0 * repeat + 10 * len(way)
            story.step(name, start, start + 9, experiment="split", n=3, nodes=NODES, publish=way, repeat=repeat)
            story.tell("introductions", start, step=name, relays=9, most=0.25, points=9)
            for place, instance in enumerate(served):
                story.fresh(name, start + place, start + place + 0.5, instance)
            story.fresh(name, start + 6, start + 8, outcome="socks-4")
    (section,) = found(story)
    table, shares = tables(section)
    assert table.console
    assert [row[:6] for row in table.rows] == [
        ("naive", "3", "12 / 2", "0.33 [0.33, 0.33]", table.rows[0][4], "100/0/0"),
        ("distributor", "3", "12 / 2", "1.00 [1.00, 1.00]", table.rows[1][4], "33/33/33"),
    ]
    assert [row[6:] for row in table.rows] == [
        ("1/1", "9", "25 %", "highly uneven"),
        ("3/3", "9", "25 %", "near even; failover works"),
    ]
    assert [row[2] for row in shares.rows[:3]] == ["0", "0", "6"]
    assert "split" in figures(story)


def test_loss_section(story: Story) -> None:
    """What fresh clients meet after an instance's end; who is cut by the step's end counts as longer, not as failed."""
    for way, first in (("yes", 0.3), ("no", 7.0)):
        name, start = f"loss-{way}", 20.0 if way == "yes" else 60.0
        detail = {"n": 3, "nodes": NODES, "publish": "distributor", "repeat": 1, "redistributed": way}
        story.step(name, start, start + 20, experiment="loss", **detail)
        story.tell("moment", start, "shop1", step=name, what="ended")
        if way == "yes":
            story.tell("distribution", start + 0.25, fetched=True, reason="instances or HSDirs changed")
        for place in range(3):
            story.fresh(name, start + place, start + place + first, "shop2")
        story.fresh(name, start + 18, start + 20, outcome="unfinished")
    (section,) = found(story)
    (table,) = tables(section)
    assert [row[2:5] for row in table.rows] == [("yes", "3 / 0", "0.300 s"), ("no", "3 / 0", "7.00 s")]
    assert [row[6:] for row in table.rows] == [("0 of 4", "0.25 s"), ("3 of 4", "\u2013")]


def test_only_copies_are_compared_with_those_of_the_paper(story: Story) -> None:
    """What was published about same-key copies is said of no other way to publish."""
    for place, way in enumerate(("naive", "hybrid")):
        step, start = f"n2-{way}-r1", 10.0 + 20 * place
        story.step(step, start, start + 9, instances=2, publish=way, repeat=1)
        story.download(step, "client1", start, start + 1, "shop1")
        story.download(step, "client1", start + 2, start + 3, "shop2")
    made = {section.title: section for section in found(story)}
    result, compared = tables(made["Result"])[0], tables(made["Published and measured"])[0]
    assert [(row[0], row[-1]) for row in result.rows] == [("naive", "56/44"), ("hybrid", "")]
    assert not [row for row in compared.rows if "hybrid" in row[0]]
    figures(story)
