"""The report's sections on attacks and on moved connections, from what a run recorded."""

from __future__ import annotations

from pathlib import Path

from testbed.measure.reader import RunReader
from testbed.measure.store import Run
from testbed.plan.types import Node, Plan
from testbed.pool.attack import report as attack
from testbed.pool.attack.model import Interval
from testbed.pool.migrate import report as migration
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
