"""The report's sections on pools, attacks and moved connections, from what a run recorded."""

from __future__ import annotations

from pathlib import Path

from testbed.measure.reader import RunReader
from testbed.measure.store import Run
from testbed.plan.types import Node, Plan
from testbed.pool.agents.clock import SECOND
from testbed.pool.attack import report as attack
from testbed.pool.attack.model import Interval
from testbed.pool.lab.course import EVENT
from testbed.pool.migrate import report as migration
from testbed.pool.report import sections as report
from testbed.pool.report import states as report_states
from testbed.report.blocks import Figure, Section, Table
from testbed.report.figures import save, style


def made(tmp_path: Path) -> Run:
    """A run for the test to fill."""
    return Run.create(tmp_path / "runs", "by_hand", Plan(name="pools", nodes=(Node(name="web"),)), seed=1)


def drawn(section: Section, folder: Path) -> list[Table]:
    """The tables of a section; its figures are drawn into ``folder``."""
    with style():
        for block in section.blocks:
            if isinstance(block, Figure):
                assert save(block.draw(), block.name, folder).startswith("<svg")
    return [block for block in section.blocks if isinstance(block, Table)]


def test_attack(tmp_path: Path) -> None:
    """A row for each pool, by how often its server changes; detectors last."""
    run = made(tmp_path)
    stretches = [
        Interval("a", 1, 0, 50, 10, 12, requests=50, leaked=40).plain(),
        Interval("b", 2, 50, 100, None, None, requests=50).plain(),
    ]
    for pool, timer, detection in (("seen", 300.0, True), ("never", None, False), ("t50", 50.0, False)):
        run.event(
            attack.EVENT,
            "web",
            pool=pool,
            repeat=1,
            intruder=100.0,
            timer=timer,
            detection=detection,
            intervals=stretches,
            asked=100,
            errors=["reset"] if pool == "never" else [],
            wrong=[],
        )
    run.close("passed")
    (section,) = attack.sections(RunReader(run.path))
    (table,) = drawn(section, tmp_path)
    assert [(row[0], row[1], row[-1]) for row in table.rows] == [
        ("t50", "50 s", "0"),
        ("never", "never", "1"),
        ("seen", "300 s or seen", "0"),
    ]
    assert table.rows[0][4].startswith("40.0%")
    assert table.rows[0][5] == "21.3%"
    assert table.rows[0][7] == "40 of 100"
    assert table.rows[2][6] == "1 (1 seen)"


def test_migration(tmp_path: Path) -> None:
    """A row for each sort of clients, and one for all moves."""
    run = made(tmp_path)
    for repeat in (1, 2):
        facts = {"connections": 2, "requests": 10, "bytes": 2**20, "servers": {"web1": 10}}
        run.event(migration.EVENT, "near", repeat=repeat, load="bulk", gaps=[0.01, 0.03], errors=[], wrong=[], **facts)
        move = {"moved": 2, "failed": 0, "left": 0, "bytes": 2**21, "seconds": 0.004 * repeat, "to": "web2"}
        run.event(f"{migration.EVENT}_move", "web1", repeat=repeat, reasons=[], **move)
    run.close("passed")
    (section,) = migration.sections(RunReader(run.path))
    clients, moves = drawn(section, tmp_path)
    assert list(clients.rows) == [("bulk, near", "4", "20", "2.0", "20.0", "30.0", "0")]
    assert list(moves.rows) == [("2", "4", "0", "4.0", "6.0", "8.0")]


def test_nothing_to_say(tmp_path: Path) -> None:
    """Other runs have no such sections."""
    run = made(tmp_path)
    run.close("passed")
    reader = RunReader(run.path)
    assert attack.sections(reader) == migration.sections(reader) == []


def test_paper(tmp_path: Path) -> None:
    """One row for each way of an experiment, over its repeats; and who was in which state, in the first of them."""
    run = made(tmp_path)
    about = {"experiment": "experiment 2", "speed": 60, "way": "measured on real servers", "renewals": [0.1]}
    for repeat in (1, 2):
        for server, state, at in (
            ("b", "ready", 2),
            ("a", "service", 1),
            ("a", "initialising", 70),
            ("b", "service", 71),
        ):
            run.event("pool", server, pool="web", what="state", state=state, at=at * SECOND)
        figures = {"times": [70 * SECOND], "leaves": {"a": 1, "b": 0}, "efficiency": 0.9 + repeat / 100, "exposure": 45}
        run.event(EVENT, "web", repeat=repeat, horizon=100 * SECOND, suspended=0, **about, **figures)
    run.close("passed")
    reader = RunReader(run.path)
    (section,) = report.sections(reader)
    (table,) = drawn(section, tmp_path)
    assert [row[2:] for row in table.rows] == [
        ("35", "-", "92.98", "93.0", "-", "-"),
        ("1", "1/0", "91.50 (91.00 to 92.00)", "45.0", "0", "100"),
    ]
    assert (tmp_path / "pool-states-experiment-2.svg").exists()
    first, second = report_states.trials(reader)
    assert [(stay.server, stay.state.value, stay.start, stay.end) for stay in first.stays] == [
        ("a", "service", 1, 70),
        ("a", "initialising", 70, 100),
        ("b", "ready", 2, 71),
        ("b", "service", 71, 100),
    ]
    assert second.stays == first.stays
