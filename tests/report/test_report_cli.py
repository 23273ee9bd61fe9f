"""The commands ``runs`` and ``report``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_onion_run import FakeRun

from testbed.cli import main
from testbed.measure.store import Run
from testbed.plan.types import Plan


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("TESTBED_RUNS", str(folder))
    return folder


def small(root: Path, **options: object) -> Path:
    given = {"repeats": 1, "numbers": (1, 2), "seconds": 5, "clients": 3, "size": 2**16, **options}
    return FakeRun(root, **given).make()  # type: ignore[arg-type]


def test_runs_are_listed_with_scenario_date_status_and_validity(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == f"no runs in {root}\n"
    good, bad = small(root), small(root, busy=1.0, status="failed")
    killed = Run.create(root, "other", Plan(name="x"), seed=1)
    killed.update(writer={})
    assert main(["runs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines[good.name].split()[1:] == ["onion_load", *lines[good.name].split()[2:4], "1", "passed", "valid"]
    assert lines[bad.name].split()[-3:] == ["failed", "INVALID", "(3)"]
    assert "killed" in lines[killed.path.name]
    assert main(["runs", "--json"]) == 0
    data = {row["run"]: row for row in json.loads(capsys.readouterr().out)}
    assert data[bad.name]["validity"] == "INVALID (3)"
    assert data[good.name]["folder"] == str(good)
    assert main(["runs", "--json", "--runs", str(root / "none")]) == 0
    assert json.loads(capsys.readouterr().out) == []
    killed.close("passed")


def test_a_report_is_made_again_by_name_by_path_and_by_beginning(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small(root, busy=1.0)
    for word in (path.name, str(path), path.name[:12]):
        assert main(["report", word]) == 0
        out = capsys.readouterr().out.splitlines()
        assert out[0].startswith("INVALID: CPU saturated in step n1-naive-r1")
        assert out[-1] == str(path / "report.html")


@pytest.mark.usefixtures("rendered")
def test_a_report_is_put_elsewhere_with_its_figures(root: Path, tmp_path: Path) -> None:
    run = Run.create(root, "other", Plan(name="x"), seed=1)
    run.event("fault", "a", fault="kill", id="kill-1", phase="start")
    run.close("passed")
    assert main(["report", run.path.name, "-o", str(tmp_path / "mine.html")]) == 0
    assert (tmp_path / "mine.html").exists()
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"timeline.png", "timeline.svg"}
    assert not (run.path / "figures").exists()


def test_runs_that_are_not_there(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nosuch"]) == 1
    error = capsys.readouterr().err
    assert "there is no run 'nosuch'" in error
    assert "testbed runs" in error
    first, second = small(root), small(root)
    assert main(["report", "onion"]) == 1
    error = capsys.readouterr().err
    assert "'onion' is the beginning of 2 runs" in error
    assert first.name in error
    assert second.name in error
