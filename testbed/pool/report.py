"""Report section of real pools: the published figures beside what was measured."""

from __future__ import annotations

from statistics import median

from testbed.measure.reader import RunReader
from testbed.pool import report_sweep
from testbed.pool.course import EVENT, FAILOVER
from testbed.pool.published import EXPERIMENT_1, EXPERIMENT_2
from testbed.report.blocks import Section, Table, Text

_EXPERIMENTS = {experiment.name: experiment for experiment in (EXPERIMENT_1, EXPERIMENT_2)}


def sections(run: RunReader) -> list[Section]:
    """What runs of ``pool_paper``, ``pool_failover`` and ``pool_sweep`` have; none for any other run."""
    return [*_paper(run), *_failover(run), *report_sweep.sections(run)]


def _failover(run: RunReader) -> list[Section]:
    found = [event.detail for event in run.events(FAILOVER)]
    rows = []
    for state in dict.fromkeys(str(detail["state"]) for detail in found):
        mine = [detail for detail in found if detail["state"] == state]
        out, whole = (median(float(detail[key]) for detail in mine) for key in ("out", "whole"))
        worst = max(float(detail["out"]) for detail in mine)
        rows.append((state, str(len(mine)), f"{out:.2f} s", f"{worst:.2f} s", f"{whole:.2f} s"))
    if not rows:
        return []
    text = "New connections every 50 ms. The pool is whole when one server serves and all others are ready."
    head = ("killed in state", "trials", "out of reach, median", "longest", "whole again, median")
    return [Section("Servers that died", [Text(text), Table(head, rows, text=(0,), console=True)])]


def _paper(run: RunReader) -> list[Section]:
    found = [event.detail for event in run.events(EVENT)]
    if not found:
        return []
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(str(detail["experiment"]) for detail in found):
        mine = [detail for detail in found if detail["experiment"] == name]
        published = _EXPERIMENTS.get(name)
        if published:
            counts = str(published.migrations), "/".join(map(str, published.leaves)) or "-"
            rows.append((name, "published", *counts, f"{published.efficiency} %", f"{published.exposure} s", "-", "-"))
        rows += [(name, *_row(detail)) for detail in mine]
    speeds = sorted({str(detail["speed"]) for detail in found})
    text = (
        f"Real pools at {' and '.join(speeds)} times their speed: what machines and agents take in real time counts as "
        "so many times as much of the pool's. The published figures have migrations of 7.3 s."
    )
    head = ("experiment", "", "migrations", "left by server", "continuity", "mean exposure", "suspended", "made anew")
    return [Section("Rotating pool", [Text(text), Table(head, rows, text=(0, 1), console=True)])]


def _row(detail: dict[str, object]) -> tuple[str, ...]:
    times, leaves, renewals = detail["times"], detail["leaves"], detail["renewals"]
    assert isinstance(times, list)
    assert isinstance(leaves, dict)
    assert isinstance(renewals, list)
    efficiency, exposure = float(str(detail["efficiency"])), float(str(detail["exposure"]))
    cost = f"{median(renewals) * 1000:.0f} ms" if renewals else "-"
    return (
        str(detail["way"]),
        str(len(times)),
        "/".join(map(str, leaves.values())),
        f"{efficiency * 100:.2f} %",
        f"{exposure:.1f} s",
        str(detail["suspended"]),
        cost,
    )
