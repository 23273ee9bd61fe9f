"""Report section of real pools: the published figures beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from testbed.measure.reader import RunReader
from testbed.pool.lab.course import EVENT, FAILOVER
from testbed.pool.report import onion as onion_report
from testbed.pool.report import states as report_states
from testbed.pool.report import sweep as report_sweep
from testbed.pool.report.published import EXPERIMENT_1, EXPERIMENT_2
from testbed.report.blocks import Section, Table, Text
from testbed.report.numbers import plural

_EXPERIMENTS = {experiment.name: experiment for experiment in (EXPERIMENT_1, EXPERIMENT_2)}


def sections(run: RunReader) -> list[Section]:
    """What runs of ``pool_paper``, ``_failover``, ``_sweep`` and ``onion_pool`` have; none for any other run."""
    return [*_paper(run), *_failover(run), *report_sweep.sections(run), *onion_report.sections(run)]


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
        published = _EXPERIMENTS.get(name)
        if published:
            counts = str(published.migrations), "/".join(map(str, published.leaves)) or "-"
            rows.append((name, "published", *counts, str(published.efficiency), str(published.exposure), "-", "-"))
        for way in dict.fromkeys(str(detail["way"]) for detail in found):
            mine = [detail for detail in found if (detail["experiment"], detail["way"]) == (name, way)]
            rows += [(name, way, *_row(mine))] if mine else []
    speeds = sorted({str(detail["speed"]) for detail in found})
    text = (
        f"Real pools at {' and '.join(speeds)} times their speed: what machines and agents take in real time counts as "
        "so many times as much of the pool's. The published figures have migrations of 7.3 s."
    )
    head = ("experiment", "", "moves", "left by server", "continuity", "exposure", "held", "made anew")
    caption = (
        f"{plural(max(int(detail['repeat']) for detail in found), 'repeat')}: mean, and from least to most where they "
        "differ. Continuity in per cent; exposure: mean service time of a turn, seconds; held: how often a server "
        "served on because none was ready; made anew: median real time, ms."
    )
    table = Table(head, rows, caption=caption, text=(0, 1), console=True)
    return [Section("Rotating pool", [Text(text), table, *report_states.figures(run)])]


def _row(repeats: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """One way of one experiment, over its repeats."""
    leaves = ["/".join(str(count) for count in detail["leaves"].values()) for detail in repeats]
    costs = [median(detail["renewals"]) * 1000 for detail in repeats if detail["renewals"]]
    return (
        _spread([len(detail["times"]) for detail in repeats], 0),
        ", ".join(dict.fromkeys(leaves)),
        _spread([float(detail["efficiency"]) * 100 for detail in repeats], 2),
        _spread([float(detail["exposure"]) for detail in repeats], 1),
        _spread([int(detail["suspended"]) for detail in repeats], 0),
        _spread(costs, 0) if costs else "-",
    )


def _spread(values: Sequence[float], digits: int) -> str:
    mean, least, most = (f"{value:.{digits}f}" for value in (fmean(values), min(values), max(values)))
    return mean if least == most else f"{mean} ({least} to {most})"
