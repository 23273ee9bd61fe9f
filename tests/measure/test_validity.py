"""When a run says INVALID, and when it only remarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from testbed.measure.store import Run, RunReader
from testbed.measure.validity import Verdict, verdict


def judge(run: Run) -> Verdict:
    return verdict(RunReader(run.path))


def step(run: Run, name: str = "n1-naive-r1", start: float = 0, end: float = 10, **detail: object) -> None:
    run.event("step", t=run.clock + start, step=name, edge="start", **detail)
    if end:
        run.event("step", t=run.clock + end, step=name, edge="end", **detail)


def cpu(run: Run, values: Sequence[float], start: float = 0, period: float = 1, node: str = "") -> None:
    series = "cpu_seconds" if node else "cpu_busy"
    run.samples((run.clock + start + period * (index + 1), series, node, value) for index, value in enumerate(values))
    run.event("sync", t=run.clock)


def downloads(run: Run, outcomes: dict[str, Sequence[str]], name: str = "n1-naive-r1") -> None:
    for client, list_of in outcomes.items():
        for outcome in list_of:
            run.event("download", client, t=run.clock + 1, step=name, outcome=outcome)


def test_a_quiet_run_is_valid(run: Run) -> None:
    step(run)
    cpu(run, [0.5] * 8 + [1.0] * 2)
    downloads(run, {"c1": ["ok", "timeout"], "c2": ["ok"]})
    assert judge(run) == Verdict((), ())


def test_a_saturated_step_is_named_with_its_figure(run: Run) -> None:
    step(run)
    step(run, "n3-naive-r1", 10, 20)
    cpu(run, [0.4] * 10)
    cpu(run, [0.95] * 3 + [0.5] * 7, start=10)
    (reason,) = judge(run).invalid
    assert "CPU saturated in step n3-naive-r1" in reason
    assert "at least 90 % busy in 30 % of the samples (mean 64 %" in reason


@pytest.mark.parametrize(("high", "invalid"), [(2, False), (3, True)])
def test_the_limit_is_a_quarter_of_the_samples(run: Run, high: int, invalid: bool) -> None:
    step(run)
    cpu(run, [0.9] * high + [0.89] * (10 - high))
    assert bool(judge(run).invalid) == invalid


def test_saturation_between_steps_does_not_matter(run: Run) -> None:
    step(run, end=5)
    step(run, "later", 15, 20)
    cpu(run, [0.5] * 5 + [1.0] * 10 + [0.5] * 5)
    assert not judge(run).invalid


def test_a_run_without_cpu_samples_is_not_invalid_but_says_so(run: Run) -> None:
    step(run)
    cpu(run, [1.0, 1.0])
    result = judge(run)
    assert not result.invalid
    assert "too few CPU samples" in result.notes[0]


def test_a_process_that_fills_a_core_is_the_bottleneck(run: Run) -> None:
    step(run)
    cpu(run, [0.2] * 10)
    cpu(run, [index * 0.99 for index in range(10)], node="relay3")
    cpu(run, [index * 0.5 for index in range(10)], node="relay4")
    (reason,) = judge(run).invalid
    assert reason.startswith("process relay3 used 99 % of one core in step n1-naive-r1")


def test_nothing_came_through(run: Run) -> None:
    step(run)
    cpu(run, [0.1] * 10)
    downloads(run, {"c1": ["timeout"], "c2": ["socks-4", "unfinished"]})
    assert judge(run).invalid == ("no download came through in step n1-naive-r1 (3 tried by 2 clients)",)


@pytest.mark.parametrize(("starved", "invalid"), [(0, 0), (1, 0), (2, 1)])
def test_starved_clients(run: Run, starved: int, invalid: int) -> None:
    step(run)
    cpu(run, [0.1] * 10)
    downloads(run, {f"c{index}": ["timeout"] if index < starved else ["ok"] for index in range(10)})
    result = judge(run)
    assert len(result.invalid) == invalid
    assert len(result.notes) == (starved == 1)
    for text in result.invalid + result.notes:
        assert f"clients starved in step n1-naive-r1: nothing came through for {starved} of 10 (c0" in text


def test_a_step_may_expect_failures(run: Run) -> None:
    step(run, expect_failures=True)
    cpu(run, [0.1] * 10)
    downloads(run, {"c1": ["timeout"]})
    assert judge(run) == Verdict((), ())


def test_a_step_that_was_cut_is_judged_too(run: Run) -> None:
    step(run, end=0)
    cpu(run, [1.0] * 10)
    result = judge(run)
    assert "CPU saturated" in result.invalid[0]
    assert result.notes == ("step n1-naive-r1 was cut after 10 s",)


def test_what_the_writer_said_comes_first_and_once(make_run: Callable[..., Run]) -> None:
    run = make_run()
    run.invalid("no download came through in step n1-naive-r1 (1 tried by 1 clients)")
    step(run)
    cpu(run, [0.1] * 10)
    downloads(run, {"c1": ["timeout"]})
    assert len(judge(run).invalid) == 1
