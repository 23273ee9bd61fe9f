"""Exported tables hold what the run holds, in both formats."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import TestbedError
from testbed.measure.export import export, tables
from testbed.measure.store import Run, RunReader


@pytest.fixture
def recorded(make_run: Callable[..., Run]) -> RunReader:
    """A run with some of everything."""
    run = make_run()
    clock = run.clock
    with run.step("n1-r1", instances=1, repeat=1):
        run.event("download", "c1", t=clock + 2, step="n1-r1", started=1.0, first_byte=1.5, last_byte=2.0, bytes=7)
        run.event("download", "c2", t=clock + 3, step="n1-r1", started=1.0, outcome="timeout", instance='ä,"b"\n')
    run.samples([(clock + 1, "bytes_from", "shop1", 10.0), (clock + 2, "bytes_from", "shop1", 2.5e15)])
    run.samples([(clock + 1, "ping_rtt", "a>b", math.nan)])
    run.close("passed")
    return RunReader(run.path)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a table, as its format has them."""
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    parquet = pytest.importorskip("pyarrow.parquet")
    return list(parquet.read_table(path).to_pylist())


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_tables(recorded: RunReader, tmp_path: Path, format: str) -> None:
    written = export(recorded, tmp_path / "out", format)  # type: ignore[arg-type]
    names = [f"{name}.{format}" for name in ("events", "samples", "downloads", "steps")]
    assert [path.name for path in written] == [*names, "manifest.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*names, "manifest.json"])
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == recorded.manifest
    events, samples, downloads, steps = (rows_of(path) for path in written[:4])
    assert [row["kind"] for row in events] == [event.kind for event in recorded.events()]
    assert json.loads(events[0]["detail"])["instances"] == 1
    wall = recorded.manifest["clock"]["wall"]
    assert float(events[0]["wall"]) - wall == pytest.approx(float(events[0]["t"]), abs=1e-5)
    assert [(row["series"], row["node"], row["value"]) for row in samples] == (
        [("bytes_from", "shop1", "10.0"), ("bytes_from", "shop1", "2500000000000000.0"), ("ping_rtt", "a>b", "")]
        if format == "csv"
        else [("bytes_from", "shop1", 10.0), ("bytes_from", "shop1", 2.5e15), ("ping_rtt", "a>b", None)]
    )
    first, second = downloads
    assert (float(first["last_byte"]), int(first["bytes"])) == (2.0, 7)
    assert (second["outcome"], second["instance"]) == ("timeout", 'ä,"b"\n')
    assert second["last_byte"] in ("", None)
    assert (steps[0]["step"], int(steps[0]["repeat"]), str(steps[0]["complete"])) == ("n1-r1", 1, "True")


def test_an_empty_run_and_one_more_time(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run()
    run.close("passed")
    for _ in range(2):
        for path in export(RunReader(run.path), tmp_path / "out")[:4]:
            assert rows_of(path) == []
    assert not list((tmp_path / "out").glob(".*"))


def test_many_samples_go_in_pieces(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("testbed.measure.export._BATCH", 7)
    run = make_run()
    run.samples((run.clock + n, f"series{n % 3}", "", float(n)) for n in range(100))
    run.close("passed")
    export(RunReader(run.path), tmp_path)
    assert sorted(row["value"] for row in rows_of(tmp_path / "samples.parquet")) == [float(n) for n in range(100)]


def test_a_run_that_goes_on_can_be_exported(run: Run, tmp_path: Path) -> None:
    run.event("seen", "a")
    export(RunReader(run.path), tmp_path, "csv")
    assert [row["kind"] for row in rows_of(tmp_path / "events.csv")] == ["seen"]


def test_without_pyarrow(recorded: RunReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TestbedError, match="Parquet needs the package pyarrow"):
        export(recorded, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export(recorded, tmp_path / "out", "csv")


def test_a_folder_that_cannot_be_written(recorded: RunReader, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TestbedError, match="cannot write"):
        export(recorded, tmp_path / "file", "csv")


def test_tables_name_their_columns(recorded: RunReader) -> None:
    for table in tables(recorded):
        for row in table.rows:
            assert len(row) == len(table.columns)
