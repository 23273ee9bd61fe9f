"""The load generator against a real proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from socks_world import SIZE, World
from waiting import await_true

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.content import content_digest
from testbed.measure.fetch import Download, Target
from testbed.measure.load import ClientLoad, recorder, run_load
from testbed.measure.store import Run, RunReader


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "socks") as running:
        yield running


def clients(world: World, count: int) -> dict[str, Path]:
    return {f"client{number}": world.path for number in range(1, count + 1)}


def test_each_client_makes_its_count_with_a_new_username_each(world: World) -> None:
    results: list[Download] = []
    summary = run_load(clients(world, 30), "ok", 80, "/file", size=SIZE, seed=3, count=4, on_result=results.append)
    assert (summary.ok, summary.failed, dict(summary.outcomes)) == (120, 0, {"ok": 120})
    assert summary.by_instance == {"shop2": 120}
    assert {(r.client, r.number) for r in results} == {(f"client{c}", n) for c in range(1, 31) for n in range(1, 5)}
    assert len(world.usernames) == 120
    run_load(clients(world, 1), "ok", 80, "/file", size=SIZE, seed=3, count=1)
    assert len(world.usernames) == 121, "a later load uses no username of an earlier one"


def test_downloads_of_one_client_come_one_after_the_other(world: World) -> None:
    results: list[Download] = []
    run_load(clients(world, 3), "ok", 80, "/file", size=SIZE, seed=3, count=5, on_result=results.append)
    for client in clients(world, 3):
        mine = [result for result in results if result.client == client]
        assert all(later.started >= earlier.ended for earlier, later in pairwise(mine))


def test_a_load_ends_with_its_duration(world: World) -> None:
    summary = run_load(clients(world, 2), "ok", 80, "/file", size=SIZE, seed=3, duration=0.5)
    assert summary.ok > 2
    assert summary.outcomes.keys() <= {"ok", "unfinished"}
    assert summary.seconds >= 0.5


def test_what_is_under_way_at_the_end_is_cut_and_reported(world: World) -> None:
    results: list[Download] = []
    summary = run_load(
        clients(world, 5), "stall", 80, "/file", size=SIZE, seed=3, duration=0.3, grace=0.3, on_result=results.append
    )
    assert dict(summary.outcomes) == {"unfinished": 5}
    assert (summary.ok, summary.failed) == (0, 0)
    assert all(result.ended - result.started >= 0.5 for result in results)


def test_failures_are_reported_and_do_not_spin(world: World) -> None:
    summary = run_load(clients(world, 2), "refuse.4", 80, "/file", size=SIZE, seed=3, duration=1.5, grace=1)
    assert set(summary.outcomes) == {"socks-4"}
    assert 2 <= summary.failed <= 6


def test_a_content_that_is_not_the_expected_one(world: World) -> None:
    assert dict(run_load(clients(world, 1), "ok", 80, "/file", size=SIZE, seed=4, count=1).outcomes) == {"corrupt": 1}


def test_the_time_out_is_each_downloads_own(world: World) -> None:
    summary = run_load(clients(world, 2), "silent", 80, "/file", size=SIZE, seed=3, count=1, timeout=0.2)
    assert dict(summary.outcomes) == {"timeout": 2}


def test_an_error_of_the_listener_ends_the_load(world: World) -> None:
    def fail(download: Download) -> None:
        raise TestbedError("the disk is full")

    with pytest.raises(TestbedError, match="the disk is full"):
        run_load(clients(world, 5), "ok", 80, "/file", size=SIZE, seed=3, duration=3600, on_result=fail)


def test_a_load_can_be_stopped_from_outside(world: World) -> None:
    target = Target("stall", 80, "/file", SIZE, content_digest(SIZE, 3))
    load = ClientLoad(clients(world, 3), target, duration=3600)
    load.start()
    await_true(lambda: world.hosts["stall"] == 3, "three requests")
    with pytest.raises(WaitTimeout, match="the end of the load"):
        load.join(0.01)
    load.stop(grace=0)
    assert dict(load.join(20).outcomes) == {"unfinished": 3}
    load.stop()  # idle


def test_stopping_again_shortens_the_grace(world: World) -> None:
    target = Target("stall", 80, "/file", SIZE, content_digest(SIZE, 3))
    load = ClientLoad(clients(world, 1), target, duration=3600, grace=3600)
    load.start()
    await_true(lambda: world.hosts["stall"] == 1, "a request")
    load.stop()
    load.stop(grace=0)
    assert dict(load.join(20).outcomes) == {"unfinished": 1}


def test_ctrl_c_reports_what_was_under_way(world: World) -> None:
    results: list[Download] = []
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        import signal

        await_true(lambda: world.hosts["stall"] == 2, "two requests")
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_load(clients(world, 2), "stall", 80, "/file", size=SIZE, seed=3, duration=3600, on_result=results.append)
    assert [result.outcome for result in results] == ["unfinished", "unfinished"]


def test_every_download_is_in_the_store_at_once(world: World, run: Run) -> None:
    record = recorder(run, "n1-naive-r1")
    seen: list[int] = []

    def check(download: Download) -> None:
        record(download)
        seen.append(len(RunReader(run.path).events("download")))

    run_load(clients(world, 2), "ok", 80, "/file", size=SIZE, seed=3, count=3, on_result=check)
    assert seen == [1, 2, 3, 4, 5, 6]
    event = RunReader(run.path).events("download")[0]
    assert event.node in ("client1", "client2")
    detail = event.detail
    assert (detail["step"], detail["outcome"], detail["bytes"], detail["instance"]) == (
        "n1-naive-r1",
        "ok",
        SIZE,
        "shop2",
    )
    assert 0 < detail["started"] < detail["first_byte"] <= detail["last_byte"] <= detail["ended"] < 60
    assert event.t == pytest.approx(detail["ended"], abs=1e-5)


class Remembering:
    """A progress listener that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int, str]] = []

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        self.told.append((stage, done, total, note))


@pytest.mark.parametrize("end", [{"duration": 0.4}, {"count": 2}])
def test_progress_is_over_only_at_the_end(world: World, end: dict[str, int]) -> None:
    progress = Remembering()
    run_load(clients(world, 2), "ok", 80, "/file", size=SIZE, seed=3, progress=progress, **end)
    stage, done, total, note = progress.told[-1]
    assert (stage, done) == ("load", total)
    assert "downloads, 0 failed" in note
    assert all(done < total for _, done, total, _ in progress.told[:-1])


def test_a_load_without_an_end_or_without_clients_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="needs an end"):
        run_load(clients(world, 1), "ok", 80, "/file", size=SIZE)
    with pytest.raises(TestbedError, match="needs clients"):
        run_load({}, "ok", 80, "/file", size=SIZE, count=1)
