"""The onion experiment's numbers: from events and samples that were written by hand to what the report says."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.measure.reader import RunReader
from testbed.measure.store import Run
from testbed.report import build_report
from testbed.report.blocks import Table
from testbed.report.console import show, summary_table
from testbed.report.numbers import natural
from testbed.tor.report import sections
from testbed.tor.report import summary_table as onion_table
from testbed.tor.report.data import conditions, measured

HEAD = ("publish", "N", "ok / failed", "median time", "Jain", "shares, %", "published")
COMPARISON = ("", "published", "measured", "spread")
MIB = 2**20


class Writer:
    """Writes steps one after the other, ten seconds each."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.now = 0.0

    def step(
        self,
        n: int,
        publish: str = "naive",
        repeat: int = 1,
        *,
        mib: Sequence[float] = (),
        times: Sequence[float] = (),
        served: Sequence[str] = (),
        outcomes: Sequence[str] = (),
        readings: Sequence[tuple[float, str, str, int]] = (),
    ) -> None:
        """A step in which the instances sent ``mib`` and downloads took ``times``."""
        name, start = f"n{n}-{publish}-r{repeat}", self.now + 1
        detail = {"step": name, "instances": n, "publish": publish, "repeat": repeat}
        clock = self.run.clock
        self.run.event("step", t=clock + start, edge="start", **detail)
        for index, amount in enumerate(mib, 1):
            before = 1000.0 * index
            rows = [(start - 1, before), (start, before), (start + 10, before + amount * MIB), (start + 11, 1e15)]
            self.run.samples((clock + t, "bytes_from", f"shop{index}", value) for t, value in rows)
        for index, seconds in enumerate(times):
            outcome = outcomes[index] if index < len(outcomes) else "ok"
            self.run.event(
                "download",
                f"client{index}",
                t=clock + start + seconds,
                step=name,
                started=start,
                first_byte=start + seconds / 2,
                last_byte=start + seconds if outcome == "ok" else None,
                ended=start + seconds,
                bytes=MIB,
                outcome=outcome,
                instance=served[index] if index < len(served) else "shop1",
            )
        for at, hsdir, instance, revision in readings:
            self.run.event("hsdir", hsdir, t=clock + start + at, step=name, instance=instance, revision=revision)
        self.run.event("step", t=clock + start + 10, edge="end", **detail)
        self.now += 12


@pytest.fixture
def write(run: Run) -> Writer:
    return Writer(run)


def test_bytes_are_those_of_the_step_only(run: Run, write: Writer) -> None:
    write.step(2, mib=(56, 44))
    (step,) = measured(RunReader(run.path))
    assert step.bytes == pytest.approx({"shop1": 56 * MIB, "shop2": 44 * MIB}, rel=1e-6)
    assert step.instances == ("shop1", "shop2")


def test_result_and_comparison_of_one_repeat(run: Run, write: Writer, page: Callable[[Path], Any]) -> None:
    write.step(1, mib=(90,), times=[4, 4, 4])
    write.step(2, mib=(44, 56), times=[2, 2, 3, 9], outcomes=["ok", "ok", "ok", "socks-4"], served=["shop1", "shop2"])
    shown = page(build_report(run.path))
    assert shown.table(*HEAD) == [
        ["naive", "1", "3 / 0", "4.00 s [4.00, 4.00]", "\u2013", "100", ""],
        ["naive", "2", "3 / 1", "2.50 s [2.00, never]", "0.99", "56/44", "56/44"],
    ]
    assert shown.table(*COMPARISON) == [
        ["naive, N=2: shares, largest first", "56 / 44 %", "56 / 44 %", "one repeat: no conclusion"],
        ["naive, N=2: data on the largest", "about 360 MiB", "56.0 MiB in 10 s", "one repeat: no conclusion"],
        ["naive, N=3: shares, largest first", "50 / 32 / 18 %", "not measured in this run", ""],
        ["naive, N=3: data on the largest", "about 330 MiB", "not measured in this run", ""],
        ["naive, N=6: instances with traffic", "4 of 6", "not measured in this run", ""],
        [
            "naive: median download time, N=2 over N=1",
            "several clearly faster than one",
            "0.62",
            "0.50 to never (within one repeat: no conclusion)",
        ],
        [
            "simultaneous against naive: Jain's index",
            "publishing at the same moment is more even (UCL, 2015)",
            "not measured in this run",
            "",
        ],
    ]
    assert "one repeat, so there is no interval" in shown.prose
    assert "version 2 onion services" in shown.prose


def test_result_over_repeats(run: Run, write: Writer, page: Callable[[Path], Any]) -> None:
    for repeat, sent in enumerate([(50, 32, 18), (20, 30, 50), (50, 32, 18)], 1):
        write.step(3, "naive", repeat, mib=sent, times=[3, 5])
        write.step(3, "simultaneous", repeat, mib=(33, 33, 34), times=[3, 5])
    shown = page(build_report(run.path))
    naive, together = shown.table(*HEAD)
    assert naive[:3] == ["naive", "3", "6 / 0"]
    assert naive[5] == "50/31/19"
    assert together[4] == "1.00 [1.00, 1.00]"
    comparison = {row[0]: row[1:] for row in shown.table(*COMPARISON)}
    assert comparison["naive, N=3: shares, largest first"][1:] == ["50 / 31 / 19 %", "50 to 50 / 28 to 34 / 16 to 22 %"]
    assert comparison["naive, N=3: data on the largest"][1:] == ["50.0 MiB in 10 s", "50.0 to 50.0 MiB"]
    label = "naive: download time, several against one"
    assert comparison[label][1:] == ["not measured in this run", ""]
    jain = comparison["simultaneous against naive: Jain's index"]
    assert jain[1] == "N=3: 1.00 against 0.87"
    assert jain[2].startswith("N=3: [1.00, 1.00] against [0.8")
    assert "mean over 3 repeats with 95 % interval" in shown.prose
    by_instance = shown.table("publish", "N", "instance", "share of data", "share of downloads", "downloads")
    assert by_instance[0][:3] == ["naive", "3", "shop1"]
    assert by_instance[0][3].startswith("40 % [0, 83]")
    assert by_instance[0][5] == "6"


def test_instances_with_traffic(run: Run, write: Writer, page: Callable[[Path], Any]) -> None:
    served = ["shop1", "shop2", "shop3", "shop6"]
    write.step(6, "naive", 1, mib=(10, 10, 10, 0.001, 0.001, 10), times=[1] * 4, served=served)
    write.step(6, "naive", 2, mib=(10, 10, 10, 0.001, 0.001, 0.001), times=[1] * 3, served=served[:3])
    comparison = {row[0]: row[1:] for row in page(build_report(run.path)).table(*COMPARISON)}
    assert comparison["naive, N=6: instances with traffic"] == ["4 of 6", "3.5 of 6", "3 to 4 over repeats"]
    first, second = measured(RunReader(run.path))
    assert (first.with_traffic, second.with_traffic) == (4, 3)


def test_traffic_without_names_in_the_answers_is_judged_by_bytes(run: Run, write: Writer) -> None:
    write.step(3, mib=(10, 0.05, 5), times=[1], served=[""])
    assert measured(RunReader(run.path))[0].with_traffic == 2


def test_readings_hold_until_the_next_and_the_end(run: Run, write: Writer, page: Callable[[Path], Any]) -> None:
    readings = [
        (0.0, "relay4", "shop1", 100),
        (0.0, "relay10", "", 0),
        (5.0, "relay4", "shop1", 100),
        (5.0, "relay10", "shop2", 101),
        (8.0, "relay4", "shop2", 102),
    ]
    write.step(2, mib=(10, 10), times=[1], readings=readings)
    shown = page(build_report(run.path))
    rows = shown.table("step", "HSDir", "from", "to", "instance", "revision")
    assert sorted(row[1:] for row in rows) == [
        ["relay10", "+0.0 s", "+5.0 s", "none", "0"],
        ["relay10", "+5.0 s", "+10.0 s", "shop2", "101"],
        ["relay4", "+0.0 s", "+8.0 s", "shop1", "100"],
        ["relay4", "+8.0 s", "+10.0 s", "shop2", "102"],
    ]
    # 8 s of shop1 against 5 s and 2 s of shop2; the time in which one held nothing is nobody's
    split = shown.table("step", "instance", "share of HSDirs held", "share of data sent", "downloads")
    assert [row[1:4] for row in split] == [["shop1", "53 %", "50 %"], ["shop2", "47 %", "50 %"]]


def test_no_panel_cuts_its_curves(run: Run, write: Writer) -> None:
    from testbed.tor.report.figures import shares_by_instance, shares_by_rank
    from testbed.tor.report.step_figures import cumulative

    for repeat in (1, 2, 3):
        write.step(2, "naive", repeat, mib=(1, 1.1), times=[1])
        write.step(3, "naive", repeat, mib=(5, 90 * repeat, 5), times=[1])
    steps = measured(RunReader(run.path))
    found = conditions(steps)
    for figure in (cumulative(steps), shares_by_instance(found), shares_by_rank(found, {2: (0.56, 0.44)})):
        for axes in figure.axes:
            (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
            assert bottom == 0
            for line in axes.get_lines():
                if line.get_linestyle() != "--" or len(line.get_xdata()) > 2:
                    assert left <= min(line.get_xdata()) <= max(line.get_xdata()) <= right
                assert max(line.get_ydata()) <= top
            for bar in axes.patches:
                assert bar.get_height() <= top


def test_one_instance_stands_for_every_way_to_publish(run: Run, write: Writer) -> None:
    from testbed.tor.report.figures import with_single

    write.step(1, "naive", mib=(5,), times=[1])
    write.step(2, "naive", mib=(5, 5), times=[1])
    write.step(2, "simultaneous", mib=(5, 5), times=[1])
    found = conditions(measured(RunReader(run.path)))
    assert [(c.publish, c.n) for c in found] == [("naive", 1), ("naive", 2), ("simultaneous", 2)]
    assert [(c.publish, c.n) for c in with_single(found, "simultaneous")] == [("naive", 1), ("simultaneous", 2)]


def test_a_run_of_something_else_has_no_onion_sections(run: Run) -> None:
    with run.step("blackout", link="a:b"):
        pass
    assert sections(RunReader(run.path)) == []


def test_names_sort_as_people_count() -> None:
    assert sorted(["shop10", "shop2", "shop1", "a"], key=natural) == ["a", "shop1", "shop2", "shop10"]


def _text(table: Any, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_the_console_shows_the_result(run: Run, write: Writer) -> None:
    write.step(1, mib=(90,), times=[4, 4, 4])
    write.step(2, mib=(44, 56), times=[2, 2, 3])
    text = _text(summary_table(run.path))
    assert text == _text(onion_table(run.path))
    line = next(line for line in text.splitlines() if "56/44" in line)
    assert " ".join(line.split()) == "naive 2 3 / 0 2.00 s [2.00, 3.00] 0.99 56/44 56/44"


def test_the_console_draws_no_figure(small_run: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from testbed.report.console import summary_table;"
        "summary_table(Path(sys.argv[1])); print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(small_run)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_console_of_any_other_run_lists_its_steps(run: Run) -> None:
    with run.step("[red]blackout\x1b[2J"):
        pass
    text = _text(summary_table(run.path))
    assert "[red]blackout\\x1b[2J" in text
    assert "\x1b" not in text


def test_a_wide_table_is_printed_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    show(Table(("run", "status"), [("x" * 200, "passed")]))
    assert "x" * 200 in capsys.readouterr().out
