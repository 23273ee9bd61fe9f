"""The report file: what stands where, that nothing in a run can break out of its text, and that it is always made."""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_onion_run import FakeRun
from PIL import Image

from testbed.errors import TestbedError
from testbed.measure.files import StoreError
from testbed.measure.reader import RunReader
from testbed.measure.store import Run
from testbed.plan.types import Node, Plan
from testbed.report import blocks, build_report
from testbed.report.blocks import Figure, Section, Text
from testbed.report.figures import inline, style

FIGURES = {
    "cpu",
    "cumulative",
    "download-median",
    "download-times",
    "fairness",
    "hsdirs",
    "shares",
    "shares-ranked",
}
HOSTILE = "</pre></svg></style><script>alert('1')</script><img src=x onerror=alert(1)>&amp;$\\frac{x}$ \" ' {{7*7}} -->"


def test_a_whole_report(onion_run: Path, onion_report: Path, page: Callable[[Path], Any]) -> None:
    shown = page(onion_report)
    headings = [
        "Summary",
        "Result",
        "Published and measured",
        "Share of each instance",
        "Download time",
        "Descriptors at the HSDirs",
        "Course of the run",
        "Failures",
        "Environment",
    ]
    assert [text for text in shown.text if text in headings] == headings * 2  # once in the list of contents
    assert "could not be made" not in shown.prose
    assert "INVALID" not in shown.source
    assert "no conclusion" not in shown.prose
    assert "onion-paper: 67 nodes" in shown.prose
    assert "4 of 6" in shown.prose
    for name in FIGURES:
        assert f'href="figures/{name}.svg"' in shown.source
        assert (onion_report.parent / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        with Image.open(onion_report.parent / "figures" / f"{name}.png") as image:
            assert image.width > 700
    assert {path.name for path in onion_run.iterdir()} == {"manifest.json", "run.sqlite", "logs", "pcap"}


def test_it_is_one_file_that_needs_nothing_else(onion_report: Path, page: Callable[[Path], Any]) -> None:
    shown = page(onion_report)
    for tag, attributes in shown.tags:
        assert tag not in ("script", "link", "iframe", "object", "image", "img")
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "figures/")), (tag, attributes)
    assert not re.search(r"url\((?!#)", shown.source)
    assert sum(tag == "svg" for tag, _ in shown.tags) == len(FIGURES)
    ids = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', shown.source))
    assert wanted <= set(ids)


@pytest.mark.usefixtures("rendered")
def test_the_same_run_gives_the_same_report(small_run: Path, tmp_path: Path) -> None:
    for again in ("a", "b"):
        build_report(small_run, tmp_path / again)
    first, second = (files(tmp_path / again) for again in ("a", "b"))
    assert first.keys() == {"report.html", *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png"))}
    assert [name for name in first if first[name] != second[name]] == []


def files(folder: Path) -> dict[str, bytes]:
    """All files below it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_invalid_run_says_so_first(tmp_path: Path, page: Callable[[Path], Any]) -> None:
    path = FakeRun(tmp_path, repeats=1, numbers=(1, 3), seconds=6, clients=3, size=2**16, busy=1.0).make()
    shown = page(build_report(path))
    assert shown.text[0] == "INVALID"
    assert "CPU saturated in step n1-naive-r1: at least 90 % busy in 100 % of the samples" in shown.prose
    assert "<title>INVALID: onion_load" in shown.source
    assert "One repeat: no conclusion." in shown.prose
    assert shown.prose.index("INVALID") < shown.prose.index("One repeat") < shown.prose.index("Summary")


@pytest.mark.usefixtures("rendered")
def test_nothing_in_a_run_can_break_out_of_its_text(tmp_path: Path, page: Callable[[Path], Any]) -> None:
    path = FakeRun(
        tmp_path,
        repeats=1,
        numbers=(1, 2),
        ways=("naive", HOSTILE),
        seconds=5,
        clients=3,
        size=2**16,
        instance=HOSTILE,
        title=HOSTILE,
        topology=HOSTILE,
        failing=0.2,
        status=None,
    )
    folder = path.make()
    path.run.event("note", HOSTILE, text=HOSTILE, **{HOSTILE: HOSTILE})
    path.run.event("failure", test=HOSTILE, message=HOSTILE)
    path.run.invalid(HOSTILE)
    path.run.event("download", HOSTILE, step=HOSTILE, outcome=HOSTILE, instance=HOSTILE, started=0, ended=1)
    path.run.event("step", step=HOSTILE, edge="start", instances=2, publish=HOSTILE)
    path.run.update(versions={HOSTILE: HOSTILE, "images": {HOSTILE: HOSTILE}}, machine={"cpu_model": HOSTILE})
    path.run.close("failed")
    shown = page(build_report(folder))
    assert "could not be made" not in shown.prose
    assert not [tag for tag, _ in shown.tags if tag in ("script", "img")]
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert "{{7*7}}" in shown.prose
    assert shown.text.count(HOSTILE) > 10, "shown as it is"
    for svg in (folder / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text()


@pytest.mark.parametrize("status", ["interrupted", "failed", "killed", "running"])
def test_a_run_that_did_not_end_well_is_reported_too(tmp_path: Path, page: Callable[[Path], Any], status: str) -> None:
    fake = FakeRun(tmp_path, repeats=1, numbers=(2,), seconds=5, clients=3, size=2**16, status=None)
    path = fake.make()
    fake.run.event("step", step="n3-naive-r1", edge="start", instances=3, publish="naive", repeat=1)
    if status in ("interrupted", "failed"):
        fake.run.close(status)
    elif status == "killed":
        fake.run.update(writer={"pid": os.getpid(), "start_ticks": -5, "boot": ""})
    shown = page(build_report(path))
    words = {
        "interrupted": "was interrupted; the report shows what was recorded until then",
        "failed": "failed; see the section on failures",
        "killed": "was killed; the report shows what was recorded until then",
        "running": "is still going on",
    }
    assert f"This run {words[status]}" in shown.prose
    assert "step n3-naive-r1 was cut" in shown.prose
    assert "could not be made" not in shown.prose
    fake.run.close("passed")


def test_a_run_in_which_nothing_happened(run: Run, page: Callable[[Path], Any]) -> None:
    shown = page(build_report(run.path))
    assert [text for text in shown.text if text in ("Summary", "Result", "Environment")] == [
        "Summary",
        "Environment",
    ] * 2
    assert "CPU of the machine not recorded" in shown.prose


@pytest.mark.parametrize("missing", ["counters", "headers", "readings"])
def test_what_was_not_recorded_is_left_out(tmp_path: Path, page: Callable[[Path], Any], missing: str) -> None:
    path = FakeRun(tmp_path, repeats=2, numbers=(1, 2), seconds=6, clients=4, size=2**16, **{missing: False}).make()
    shown = page(build_report(path))
    assert "could not be made" not in shown.prose
    assert ("figures/cumulative.svg" in shown.source) == (missing != "counters")
    assert "figures/shares.svg" in shown.source
    assert ("figures/hsdirs.svg" in shown.source) == (missing != "readings")


def test_a_step_without_a_single_download_or_byte(run: Run, page: Callable[[Path], Any]) -> None:
    for number in (1, 2):
        with run.step(f"n{number}", instances=number, publish="naive", repeat=1):
            run.event("download", "c", step=f"n{number}", started=0, ended=1, outcome="timeout", bytes=0, instance="")
    shown = page(build_report(run.path))
    assert "could not be made" not in shown.prose
    assert "no download came through in step n2" in shown.prose
    assert shown.table("publish", "N", "ok / failed", "median time", "Jain", "shares, %", "published") == [
        ["naive", "1", "0 / 1", "never", "\u2013", "\u2013", ""],
        ["naive", "2", "0 / 1", "never", "\u2013", "\u2013", "56/44"],
    ]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Callable[[blocks.Maker], None]:
    """Adds a maker of sections beside the installed ones."""
    installed = dict(blocks.makers())

    def add(maker: blocks.Maker) -> None:
        monkeypatch.setattr("testbed.report.build.makers", lambda: {**installed, "mine": maker})

    return add


def test_a_plugin_adds_its_sections(
    run: Run, plugin: Callable[[blocks.Maker], None], page: Callable[[Path], Any]
) -> None:
    plugin(lambda reader: [Section("Mine", [Text(f"seed {reader.manifest['seed']}")])])
    assert "Mine seed 1" in page(build_report(run.path)).prose


def test_a_plugin_that_fails_costs_its_own_part_only(
    run: Run, plugin: Callable[[blocks.Maker], None], page: Callable[[Path], Any]
) -> None:
    def fail(reader: RunReader) -> list[Section]:
        raise KeyError("<b>nothing</b>")

    plugin(fail)
    prose = page(build_report(run.path)).prose
    assert "mine: this section could not be made" in prose
    assert "KeyError: '<b>nothing</b>'" in prose
    assert "Environment" in prose


def test_a_figure_that_fails_costs_itself_only(
    run: Run, plugin: Callable[[blocks.Maker], None], page: Callable[[Path], Any]
) -> None:
    def draw() -> Any:
        raise ZeroDivisionError("no data")

    plugin(lambda reader: [Section("Mine", [Figure("mine", draw, "x"), Text("and the rest")])])
    prose = page(build_report(run.path)).prose
    assert "ZeroDivisionError: no data" in prose
    assert "and the rest" in prose


def test_where_the_report_goes(run: Run, tmp_path: Path) -> None:
    assert build_report(run.path) == run.path / "report.html"
    assert build_report(run.path, tmp_path / "a.html") == tmp_path / "a.html"
    (tmp_path / "there").mkdir()
    assert build_report(run.path, tmp_path / "there") == tmp_path / "there" / "report.html"
    assert build_report(run.path, tmp_path / "new") == tmp_path / "new" / "report.html"


def test_places_that_do_not_work(run: Run, tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="not a run that can be read"):
        build_report(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        build_report(run.path, tmp_path / "file" / "x.html")


def test_long_tables_are_cut_and_say_so(run: Run, page: Callable[[Path], Any]) -> None:
    for number in range(450):
        run.event("note", number=number)
        run.event("download", "c", step="s", started=0, ended=1, outcome="reset")
    prose = page(build_report(run.path)).prose
    assert "and 50 more in run.sqlite" in prose
    assert "Failed downloads (the first 400 of 450)" in prose


def test_svg_inside_html() -> None:
    svg = '<?xml version="1.0"?>\n<svg width="5pt" height="6pt" viewBox="0 0 5 6"><!-- x --><metadata>m</metadata>'
    svg += '<path id="a" width="3"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    assert inline(svg, "f") == (
        '<svg viewBox="0 0 5 6"><path id="f-a" width="3"/><use xlink:href="#f-a" clip-path="url(#f-a)"/></svg>'
    )


def test_names_with_a_dollar_are_drawn_as_they_are() -> None:
    with style():
        from testbed.report.figures import drawing

        figure = drawing(2, 2)
        figure.text(0, 0, "$\\frac{x$")
        figure.savefig(io.BytesIO())


def test_the_core_knows_nothing_of_tor() -> None:
    folder = Path(blocks.__file__).parent
    words = {path.name: re.findall(r"testbed\.tor|onion|hsdir_map", path.read_text()) for path in folder.glob("*.py")}
    words.pop("graph.py", None)
    assert not {name: found for name, found in words.items() if found}


@pytest.mark.root
@pytest.mark.usefixtures("rendered")
def test_under_sudo_the_report_belongs_to_who_called(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with run.step("one"):
        now = time.monotonic()
        run.samples((now + index * 1e-6, "cpu_busy", "", 0.5) for index in range(5))
    run.event("sync")
    monkeypatch.setenv("SUDO_UID", "10001")
    monkeypatch.setenv("SUDO_GID", "10001")
    report = build_report(run.path)
    for path in (report, report.parent / "figures", *(report.parent / "figures").iterdir()):
        assert path.stat().st_uid == 10001, path


def test_a_plan_with_services_is_counted_by_role(tmp_path: Path, page: Callable[[Path], Any]) -> None:
    plan = Plan(name="x", nodes=(Node(name="a"), Node(name="b", role="relay"), Node(name="c", role="relay")))
    run = Run.create(tmp_path, "x", plan, seed=1)
    run.close("passed")
    assert "x: 3 nodes, 0 links (1 host, 2 relay)" in page(build_report(run.path)).prose
