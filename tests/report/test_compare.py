"""Runs beside each other: what differs, what changed by more than chance, and when nothing may be said."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.errors import TestbedError
from testbed.measure.store import Run, RunReader
from testbed.plan.types import Node, Plan
from testbed.report.compare import Change, as_data, compare, repeats_needed
from testbed.report.compare_figures import OUTSIDE, Key, figures
from testbed.report.compare_text import blocks

PLAN = Plan(name="pair", seed=1, nodes=(Node(name="a"), Node(name="b")))
Make = Callable[..., RunReader]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Records runs of a scenario that never was: downloads of about ``seconds``, pings of about ``rtt``."""

    def record(
        name: str = "trial",
        *,
        repeats: int = 6,
        seconds: float = 1.0,
        rtt: float = 0.010,
        seed: int = 0,
        fail: float = 0.0,
        invalid: str = "",
        outage: float | None = None,
        **manifest: Any,
    ) -> RunReader:
        run = Run.create(tmp_path / "runs", name, PLAN, seed=1, manifest={"repeats": repeats, **manifest})
        chance = random.Random(seed)
        at = 0.0
        for repeat in range(1, repeats + 1):
            for instances in (1, 3):
                step = f"n{instances}-r{repeat}"
                detail: dict[str, Any] = {"instances": instances, "repeat": repeat}
                if fail:
                    detail["expect_failures"] = True
                run.event("step", t=run.clock + at, step=step, edge="start", **detail)
                _downloads(run, step, at, seconds * chance.uniform(0.95, 1.05), fail, chance)
                _bytes(run, at, instances, chance)
                _ping(run, at + 1, rtt * chance.uniform(0.97, 1.03))
                if outage is not None:
                    _outage(run, at + 3, outage * chance.uniform(0.9, 1.1))
                at += 10
                run.event("step", t=run.clock + at, step=step, edge="end", **detail)
        if invalid:
            run.invalid(invalid)
        run.close("passed")
        return RunReader(run.path)

    return record


def _downloads(run: Run, step: str, at: float, seconds: float, fail: float, chance: random.Random) -> None:
    for number in range(8):
        took = seconds * chance.uniform(0.8, 1.2)
        failed = chance.random() < fail
        run.event(
            "download",
            f"c{number}",
            step=step,
            started=at,
            first_byte=at + took / 4,
            last_byte=None if failed else at + took,
            ended=at + took,
            bytes=1000,
            outcome="timeout" if failed else "ok",
        )


def _bytes(run: Run, at: float, instances: int, chance: random.Random) -> None:
    for index in range(1, 4):
        grown = 1e6 * chance.uniform(0.9, 1.1) if index <= instances else 10.0
        run.samples([(run.clock + at, "bytes_from", f"shop{index}", 0.0)])
        run.samples([(run.clock + at + 10, "bytes_from", f"shop{index}", grown)])


def _ping(run: Run, at: float, rtt: float) -> None:
    rtts = [rtt, rtt * 1.01, math.nan, rtt * 0.99]
    run.samples((run.clock + at + index, "ping_rtt", "a>b", value) for index, value in enumerate(rtts))
    run.event("probe", "a", probe="ping", target="b", started=at, ended=at + 4, sent=4, received=3)


def _outage(run: Run, at: float, seconds: float) -> None:
    run.event("outage", "a", target="b:80", start=at, end=at + seconds, seconds=seconds, lost=4)
    run.event("probe", "a", probe="availability", target="b:80", started=at - 1, ended=at + 5, asked=40, lost=4)


def changes_of(one: RunReader, other: RunReader) -> dict[tuple[str, str], Change]:
    """Changes by condition and figure."""
    return {(change.key.condition, change.key.name): change for change in compare([one, other]).changes[0]}


def test_figures(make: Make) -> None:
    found = figures(make(repeats=2, outage=1.0))
    assert {key.condition for key in found} == {"instances=1", "instances=3"}
    downloads = found[Key("instances=3", "download time", "s")]
    assert [len(repeat) for repeat in downloads.repeats] == [8, 8]
    assert downloads.estimate.value == pytest.approx(1.0, rel=0.1)
    ping = found[Key("instances=1", "ping a>b", "s")]
    assert [len(repeat) for repeat in ping.repeats] == [4, 4]
    assert ping.estimate.value == pytest.approx(0.010, rel=0.1)
    assert found[Key("instances=1", "ping loss a>b", "share")].by_repeat == [0.25, 0.25]
    assert found[Key("instances=3", "Jain's index", "index")].by_repeat == pytest.approx([1, 1], abs=0.02)
    assert Key("instances=1", "Jain's index", "index") not in found, "one instance is always fair"
    assert found[Key("instances=1", "bytes sent", "bytes")].by_repeat == pytest.approx([1e6, 1e6], rel=0.11)
    assert found[Key("instances=1", "outages a>b:80", "count")].by_repeat == [1, 1]
    assert found[Key("instances=1", "time out of service a>b:80", "s")].by_repeat == pytest.approx([1, 1], rel=0.11)
    assert found[Key("instances=1", "requests lost a>b:80", "share")].by_repeat == [0.1, 0.1]


def test_what_is_in_no_step_is_one_repeat(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "trial", PLAN, seed=1)
    for number in range(3):
        run.event("probe", "a", probe="tcp", target="b:80", started=float(number), ended=number + 0.1, seconds=0.01)
    run.event("probe", "a", probe="http", target="http://b/", started=4.0, ended=5.0, outcome="timeout", total=None)
    run.event("probe", "a", probe="http", target="http://b/", started=4.0, ended=5.0, failed="KeyboardInterrupt: ")
    run.event("step", t=run.clock + 6, step="cut", edge="start")
    run.event("probe", "a", probe="tcp", target="b:80", started=7.0, ended=7.1, seconds=99.0)
    run.close("interrupted")
    found = figures(RunReader(run.path))
    assert {key.condition for key in found} == {OUTSIDE}
    assert found[Key(OUTSIDE, "TCP connect a>b:80", "s")].by_repeat == [0.01]
    assert found[Key(OUTSIDE, "HTTP total a>http://b/", "s")].by_repeat == [math.inf]


def test_a_difference_is_shown_and_nothing_else(make: Make) -> None:
    """Downloads take twice as long, everything else is as it was."""
    changes = changes_of(make(), make(seconds=2.0, seed=1))
    for count in (1, 3):
        slow = changes[f"instances={count}", "download time"]
        assert slow.verdict == "changed"
        assert slow.difference.value == pytest.approx(1.0, rel=0.25)
        assert slow.difference.low is not None
        assert slow.difference.low > 0.5
        assert slow.p == pytest.approx(2 / 924)
    unchanged = {name for (_, name), change in changes.items() if change.verdict == "not shown to differ"}
    assert {"ping a>b", "ping loss a>b", "bytes sent", "Jain's index", "goodput"} <= unchanged
    assert not unchanged & {"download time", "time to first byte"}


def test_of_one_repeat_nothing_is_concluded(make: Make) -> None:
    one = compare([make(repeats=1), make(repeats=6, seconds=100.0, rtt=9.0)])
    assert {change.verdict for change in one.changes[0]} == {"too few repeats"}
    assert one.tested == 0
    assert all(math.isnan(change.corrected) for change in one.changes[0])
    text = _text(one)
    assert "too few repeats" in text
    assert f"{repeats_needed(one)} repeats of each run are needed" in text


def test_too_few_for_so_many_figures(make: Make) -> None:
    """Four repeats could show one figure alone, but not one of a dozen; the text says how many are needed."""
    found = compare([make(repeats=4), make(repeats=4, seconds=2.0, seed=1)])
    assert {change.verdict for change in found.changes[0]} == {"too few repeats"}
    assert found.tested == len(found.changes[0])
    assert repeats_needed(found) == 6


def test_the_same_run_twice_does_not_differ(make: Make) -> None:
    run = make()
    found = compare([run, run])
    assert found.manifest == ()
    assert found.topology == ()
    assert {change.verdict for change in found.changes[0]} == {"not shown to differ"}
    assert "made alike" in _text(found)


def test_by_chance_alone_nothing_changes(make: Make) -> None:
    """Six pairs of runs of the same thing: Holm keeps the chance of any false alarm in a pair below 5 %."""
    runs = [make(seed=seed) for seed in range(4)]
    alarms = [
        any(change.verdict == "changed" for change in compare([one, other]).changes[0])
        for index, one in enumerate(runs)
        for other in runs[index + 1 :]
    ]
    assert sum(alarms) <= 1


def test_downloads_that_never_end(make: Make) -> None:
    changes = changes_of(make(), make(fail=0.9, seed=1))
    gone = changes["instances=1", "download time"]
    assert (gone.other.estimate.value, gone.difference.value, gone.verdict) == (math.inf, math.inf, "changed")
    assert changes["instances=1", "failed downloads"].verdict == "changed"
    both = changes_of(make(fail=1.0), make(fail=1.0, seed=1))["instances=1", "download time"]
    assert math.isnan(both.difference.value)
    assert both.verdict == "not shown to differ"


def test_an_invalid_run_gives_no_conclusion(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = make(), make(seconds=5.0, invalid="the link lied")
    found = compare([good, bad, make(seconds=2.0)])
    assert {change.verdict for change in found.changes[0]} == {"no conclusion: INVALID run"}
    assert "changed" in {change.verdict for change in found.changes[1]}
    assert _text(found).startswith("INVALID: B: the link lied")
    assert main(["compare", str(good.path), str(bad.path)]) == 10
    assert capsys.readouterr().out.startswith("INVALID: B: the link lied")


def test_what_the_manifests_say(make: Make, tmp_path: Path) -> None:
    one = make(parameters={"seconds": "8s"}, versions={"tor": "0.4.8.1"}, topology="name: x\nseed: 1\n")
    other = make(parameters={"seconds": "60s"}, versions={"tor": "0.4.9.1"}, topology="name: x\nseed: 2\n")
    found = compare([one, other])
    assert dict(found.manifest) == {"parameters.seconds": ("8s", "60s"), "versions.tor": ("0.4.8.1", "0.4.9.1")}
    assert found.topology == (
        "--- topology of A",
        "+++ topology of B",
        "@@ -1,2 +1,2 @@",
        " name: x",
        "-seed: 1",
        "+seed: 2",
    )
    assert "may come from any of these" in _text(found)


def test_figures_that_only_one_has(make: Make) -> None:
    found = compare([make(repeats=1), make(repeats=1, outage=1.0)])
    assert "outages a>b:80 (instances=1)" in found.missing[0]
    assert "In only one of A and B: " in _text(found)


def test_one_run_is_not_enough(make: Make) -> None:
    with pytest.raises(TestbedError, match="one run cannot be compared"):
        compare([make(repeats=1)])


def test_command(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs by name, as text and as strict JSON."""
    one, other = make(repeats=7), make(repeats=7, seconds=2.0, seed=1)
    never = make(repeats=1, fail=1.0)
    folder = ["--runs", str(one.path.parent)]
    assert main(["compare", one.path.name, other.path.name, *folder]) == 0
    text = capsys.readouterr().out
    assert "B against A" in text
    assert "download time" in text
    assert "changed" in text
    assert main(["compare", "--json", one.path.name, other.path.name, never.path.name, *folder]) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    data = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert data == as_data(compare([one, other, never]))
    assert [run["repeats"] for run in data["runs"]] == [7, 7, 1]
    first, second = data["comparisons"]
    times = [figure for figure in first["figures"] if figure["figure"] == "download time"]
    assert {figure["verdict"] for figure in times} == {"changed"}
    assert times[0]["first"]["repeats"] == 7
    assert "inf" in {figure["other"]["value"] for figure in second["figures"]}
    assert main(["compare", one.path.name, "nosuch", *folder]) == 1


def test_export_command(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(repeats=1)
    assert main(["export", run.path.name, "--runs", str(run.path.parent), "-o", str(tmp_path / "out")]) == 0
    written = capsys.readouterr().out.split()
    assert [Path(path).name for path in written][-1] == "manifest.json"
    assert all(Path(path).is_file() for path in written)
    assert main(["export", str(run.path), "--format", "csv"]) == 0
    assert (run.path / "export" / "downloads.csv").is_file()
    assert main(["export", str(run.path), "--format", "xls"]) == 1


def _text(found: Any) -> str:
    return "\n".join(str(block) for block in blocks(found)).replace("Text(text='", "", 1)
