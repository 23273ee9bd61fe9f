"""Runs: what is in the folder, that it is safe at once, and that it can be read at any time."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import await_true

from testbed.errors import TestbedError
from testbed.measure.store import Run, RunReader, StoreError, runs_in, runs_root
from testbed.plan.types import Node, Plan


def test_the_folder_says_what_ran_on_what(make_run: Callable[..., Run], plan: Plan) -> None:
    run = make_run("onion_load[small]", title="A trial", topology="name: two\n", manifest={"versions": {"x": "1"}})
    assert re.fullmatch(r"onion_load-small-\d{8}-\d{6}-[0-9a-f]{4}", run.path.name)
    assert {"manifest.json", "run.sqlite", "logs", "pcap"} <= {path.name for path in run.path.iterdir()}
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["status"] == "running"
    assert (manifest["scenario"], manifest["title"], manifest["seed"]) == ("onion_load[small]", "A trial", 7)
    assert manifest["topology"] == "name: two\n"
    assert Plan.model_validate(manifest["plan"]) == plan
    assert manifest["plan_digest"] == plan.digest()
    assert manifest["impairment"] == "none"
    assert manifest["versions"]["x"] == "1"
    assert manifest["versions"]["kernel"] == os.uname().release
    assert "pydantic" in manifest["versions"]["packages"]
    assert manifest["machine"]["cpu_count"] >= 1
    assert manifest["machine"]["memory_bytes"] > 2**20
    assert manifest["clock"]["monotonic"] == run.clock
    run.close("passed")


def test_the_clock_anchor_joins_both_clocks(run: Run) -> None:
    clock = RunReader(run.path).manifest["clock"]
    # The difference of the two clocks now and then is the same unless the wall clock was set meanwhile.
    assert clock["wall"] - clock["monotonic"] == pytest.approx(time.time() - time.monotonic(), abs=1.0)


def test_events_and_samples_come_back(run: Run) -> None:
    run.event("step", t=run.clock + 1, step="a", edge="start", text="ü\ud800")
    run.event("note", "b", t=run.clock + 0.5, value=3)
    run.samples(
        [(run.clock + 1, "bytes", "a", 10), (run.clock + 2, "bytes", "a", 30), (run.clock + 2, "bytes", "b", 5)]
    )
    run.sample("cpu", "", 0.5, t=run.clock + 3)
    run.event("last")
    reader = RunReader(run.path)
    assert [event.kind for event in reader.events()] == ["last", "note", "step"]  # "last" was now: before 0.5 s
    note = reader.events("note")[0]
    assert (note.t, note.node, note.detail) == (pytest.approx(0.5), "b", {"value": 3})
    assert reader.events(node="b") == [note]
    assert reader.events("step")[0].detail["text"] == "ü\ud800"
    assert [(round(t, 3), value) for t, _, value in reader.samples("bytes", "a")] == [(1, 10), (2, 30)]
    assert {node for _, node, _ in reader.samples("bytes")} == {"a", "b"}
    assert reader.series() == [("bytes", "a"), ("bytes", "b"), ("cpu", "")]
    assert reader.end == pytest.approx(3)


def test_an_event_can_be_read_once_event_has_returned(run: Run) -> None:
    for number in range(20):
        run.event("tick", number=number)
        assert RunReader(run.path).events("tick")[-1].detail["number"] == number


def test_samples_can_be_read_soon_without_any_event(run: Run) -> None:
    run.sample("cpu", "", 0.25)
    await_true(lambda: bool(RunReader(run.path).samples("cpu")), "the sample's commit")


def test_many_threads_write_at_once(run: Run) -> None:
    def work(name: str) -> None:
        for number in range(200):
            run.event("tick", name, number=number)
            run.sample("value", name, number)

    threads = [threading.Thread(target=work, args=(f"t{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.close("passed")
    reader = RunReader(run.path)
    for name in (f"t{index}" for index in range(8)):
        assert [event.detail["number"] for event in reader.events("tick", name)] == list(range(200))
        assert sorted(sample.value for sample in reader.samples("value", name)) == list(range(200))


CHILD = """
import sys
from pathlib import Path
from testbed.measure.store import Run
from testbed.plan.types import Plan

run = Run.create(Path(sys.argv[1]), "killed", Plan(name="x"), seed=1)
for number in range(10**9):
    run.sample("value", "", number)
    run.event("tick", number=number)
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_loses_nothing_that_was_recorded(tmp_path: Path, seed: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for _ in range(random.Random(seed).randrange(50, 1500)):
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    confirmed = [int(line) for line in child.stdout.read().split("\n")[:-1]]
    assert child.wait(10) == -signal.SIGKILL
    (run,) = runs_in(tmp_path)
    assert run.status == "killed"
    ticks = [event.detail["number"] for event in run.events("tick")]
    values = [sample.value for sample in run.samples("value")]
    assert ticks == list(range(len(ticks)))
    assert values[: len(ticks)] == ticks
    assert ticks[-1] >= max(confirmed, default=49)


DISK_FULL = """
import sys
from pathlib import Path
from testbed.measure.store import Run, StoreError
from testbed.plan.types import Plan

run = Run.create(Path(sys.argv[1]) / "runs", "full", Plan(name="x"), seed=1)
written, errors = 0, []
for number in range(10000):
    try:
        run.event("tick", number=number, padding="x" * 500)
        written += 1
    except StoreError as error:
        errors.append(error)
try:
    run.close("passed")
except StoreError as error:
    errors.append(error)
from testbed.measure.store import RunReader
assert len(RunReader(run.path).events("tick")) == written, "the reader sees what was recorded"
assert written > 100 and len(set(map(str, errors))) == 1 and len(set(map(id, errors))) == 1
print(errors[0])
"""


@pytest.mark.root
def test_a_full_disk_is_one_clear_error_and_what_was_recorded_stays(tmp_path: Path) -> None:
    script = f'mount -t tmpfs -o size=3m none {tmp_path} && exec "$0" -c "$1" {tmp_path}'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, sys.executable, DISK_FULL]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "the disk is full" in done.stdout
    assert "free some space" in done.stdout


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        Run.create(tmp_path / "file" / "runs", "x", plan, seed=1)


def test_a_closed_run_is_one_plain_file(run: Run) -> None:
    run.event("note")
    run.close("passed")
    run.close("failed")  # idle
    assert {path.name for path in run.path.iterdir()} == {"manifest.json", "run.sqlite", "logs", "pcap"}
    reader = RunReader(run.path)
    assert reader.status == "passed"
    assert reader.manifest["ended"]
    with pytest.raises(StoreError, match="closed"):
        run.event("late")
    run.listener(time.monotonic(), "late", "", {})  # a lab that goes down says things; they are no part of the run
    assert [event.kind for event in reader.events()] == ["note"]


def test_closing_while_somebody_reads_keeps_everything(run: Run) -> None:
    run.event("note")
    other = sqlite3.connect(run.path / "run.sqlite")
    other.execute("BEGIN")
    other.execute("SELECT * FROM events").fetchall()
    run.close("passed")
    assert [event.kind for event in RunReader(run.path).events()] == ["note"]
    other.close()


def test_a_status_that_does_not_exist_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="none of"):
        run.close("running")


def test_reasons_of_invalidity_are_on_disk_at_once(run: Run) -> None:
    run.invalid("the moon was full")
    run.invalid("the moon was full")
    reader = RunReader(run.path)
    assert reader.invalid == ["the moon was full"]
    assert len(reader.events("invalid")) == 1
    run.close("passed")
    assert run.invalid_reasons == ["the moon was full"]


def test_closing_judges_the_data(run: Run) -> None:
    with run.step("busy"):
        now = time.monotonic()
        run.samples((now + index * 1e-6, "cpu_busy", "", 1.0) for index in range(10))
        while time.monotonic() < now + 1e-4:
            pass
    run.close("passed")
    assert "CPU saturated in step busy" in RunReader(run.path).invalid[0]


def test_a_repeat_that_is_no_number(run: Run) -> None:
    with run.step("one", repeat="first"), run.step("two", repeat=None), run.step("three", repeat="3"):
        pass
    one, two, three = RunReader(run.path).steps()
    for step in (one, two):
        with pytest.raises(TestbedError, match=rf"step '{step.name}' was recorded as repeat.*\n.*whole number"):
            _ = step.repeat
    assert three.repeat == 3


def test_a_step_has_both_edges_also_where_it_fails(run: Run) -> None:
    with pytest.raises(KeyError), run.step("one", instances=2, repeat=3):
        raise KeyError("x")
    run.event("step", step="two", edge="start", instances=4)
    run.event("note")
    one, two = RunReader(run.path).steps()
    assert (one.name, one.repeat, one.complete, dict(one.detail)) == ("one", 3, True, {"instances": 2, "repeat": 3})
    assert (two.name, two.complete) == ("two", False)
    assert two.end == RunReader(run.path).end > two.start
    assert one.conditions == (("instances", "2"),)
    assert RunReader(run.path).events("step")[1].detail["failed"] == "KeyError: 'x'"


def test_steps_of_an_experiment_and_what_happened_in_them(run: Run) -> None:
    for name, experiment in (("one", "first"), ("two", "second"), ("three", "first")):
        with run.step(name, experiment=experiment):
            run.event("seen", name)
        run.event("seen", "between")
    reader = RunReader(run.path)
    assert [step.name for step in reader.steps()] == ["one", "two", "three"]
    steps = reader.steps("first")
    assert [step.name for step in steps] == ["one", "three"]
    assert [[event.node for event in step.during(reader.events("seen"))] for step in steps] == [["one"], ["three"]]


def test_the_manifest_can_grow(run: Run) -> None:
    run.update(lab="a1b2c3d4")
    assert RunReader(run.path).manifest["lab"] == "a1b2c3d4"


def test_a_call_that_fails_does_not_spoil_the_next(run: Run) -> None:
    run.sample("value", "", math.nan)
    with pytest.raises(UnicodeEncodeError):
        run.event("note", "\ud800")
    with pytest.raises(TypeError):
        run.event("note", detail={(1, 2): 3})  # a key that JSON does not have
    run.event("note", "a")
    reader = RunReader(run.path)
    assert [event.node for event in reader.events("note")] == ["a"]
    assert [math.isnan(sample.value) for sample in reader.samples("value")] == [True]


@pytest.mark.parametrize("break_it", ["none", "json", "list", "database", "garbage"])
def test_what_is_no_run_is_said_to_be_none(tmp_path: Path, run: Run, break_it: str) -> None:
    run.close("passed")
    if break_it == "none":
        shutil.rmtree(run.path)
    elif break_it in ("json", "list"):
        (run.path / "manifest.json").write_text("{" if break_it == "json" else "[]")
    elif break_it == "database":
        (run.path / "run.sqlite").unlink()
    else:
        (run.path / "run.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(TestbedError, match="not a run that can be read"):
        RunReader(run.path).events()


def test_runs_are_listed_and_other_folders_are_not(make_run: Callable[..., Run], tmp_path: Path) -> None:
    assert runs_in(tmp_path / "runs") == []
    paths = [make_run(name).path for name in ("b", "a")]
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "half").mkdir()
    (tmp_path / "runs" / "half" / "manifest.json").write_text("{")
    assert {run.path for run in runs_in(tmp_path / "runs")} == set(paths)
    assert all(run.status == "running" for run in runs_in(tmp_path / "runs"))


def test_where_runs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTBED_RUNS", raising=False)
    assert runs_root() == Path("runs")
    monkeypatch.setenv("TESTBED_RUNS", "/elsewhere")
    assert runs_root() == Path("/elsewhere")


@pytest.mark.root
@pytest.mark.parametrize("closed", [True, False])
def test_anybody_can_read_a_run_that_root_records(closed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: S103
        run = Run.create(Path(folder), "x", Plan(name="x", nodes=(Node(name="a"),)), seed=1)
        run.event("note")
        if closed:
            run.close("passed")
        os.seteuid(10001)
        try:
            assert [event.kind for event in RunReader(run.path).events()] == ["note"]
        finally:
            os.seteuid(0)
        run.close("passed")


@pytest.mark.root
def test_under_sudo_the_run_belongs_to_who_called(
    monkeypatch: pytest.MonkeyPatch, make_run: Callable[..., Run]
) -> None:
    monkeypatch.setenv("SUDO_UID", "10001")
    monkeypatch.setenv("SUDO_GID", "10001")
    run = make_run()
    (run.path / "logs" / "relay1-tor.log").write_text("")
    run.close("passed")
    for path in (run.path.parent, run.path, *run.path.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (10001, 10001), path


def test_importing_the_store_loads_nothing_heavy() -> None:
    code = "import testbed.measure.store, sys; print({'numpy', 'scipy', 'matplotlib', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
