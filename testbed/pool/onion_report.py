"""Report section of an onion service whose instances are a rotating pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.measure.reader import Event, RunReader, Step
from testbed.measure.stats import median
from testbed.report.blocks import Section, Table, Text

EVENT = "onion_rotation"
"""A migration, at the end of the instance that served before; its node is the new one."""
WRONG = {"corrupt", "short", "long"}
"""Outcomes of downloads whose bytes are not those expected."""
TEXT = (
    "Nothing is published about a rotating onion service. Hand-over is from when a migration was due until all HSDirs "
    "had acknowledged the new instance's descriptor; the old one served meanwhile. Served again is from the end of the "
    "old instance until the last byte of each client's first complete download that began afterwards, with its pause "
    "between requests. Clients that had not been served when the next migration ended an instance count as late. "
    "Fresh clients never asked before; known ones have the descriptor of the instance that they used last."
)


@dataclass(frozen=True)
class Seen:
    """What clients saw from the end of one instance to that of the next."""

    again: Sequence[float]
    """Seconds until each client was served again."""
    late: int


def sections(run: RunReader) -> list[Section]:
    """One section for runs of ``onion_pool``; none for any other run."""
    moves = run.events(EVENT)
    if not moves:
        return []
    conditions: dict[tuple[str, str], list[Step]] = {}
    for step in run.steps():
        if step.detail.get("experiment") == "onion-pool":
            key = (str(step.detail["signal"]), str(step.detail["overlap"]))
            conditions.setdefault(key, []).append(step)
    downloads, fresh = run.events("download"), run.events("fresh")
    rows, turns = [], []
    for (signal, overlap), steps in conditions.items():
        names = {step.name for step in steps}
        mine = [move for move in moves if move.detail["step"] in names]
        asked = [item for item in downloads if item.detail["step"] in names]
        first = [item for item in fresh if item.detail["step"] in names]
        seen = [found for step in steps for found in after_moves(step, mine, asked)]
        again = [value for found in seen for value in found.again]
        rows.append(
            (
                f"{signal}, {overlap}",
                str(len(mine)),
                _times([float(move.detail["handover"]) for move in mine]),
                _times(again),
                str(sum(found.late for found in seen)),
                _counts(asked),
                _counts(first),
                str(sum(item.detail["outcome"] in WRONG for item in (*asked, *first))),
            )
        )
        turns += [_turn(move) for move in mine]
    head = (
        *("end of the old one", "moves", "hand-over, s", "served again, s", "late"),
        *("known: ok / failed", "fresh: ok / failed", "wrong bytes"),
    )
    caption = "By how the old one is ended and how long both serve; times are the median (least to most)"
    return [
        Section(
            "Onion service that rotates",
            [
                Text(TEXT),
                Table(head, rows, caption=caption, console=True),
                Table(
                    ("step", "due, s", "cause", "from", "to", "hand-over, s", "HSDirs with the new one", "revision"),
                    turns,
                    caption="Each migration; when it was due is the schedule's time",
                    text=(0, 2, 3, 4),
                ),
            ],
        )
    ]


def after_moves(step: Step, moves: Sequence[Event], downloads: Sequence[Event]) -> list[Seen]:
    """What the clients of a step saw after each of its migrations."""
    ends = sorted(move.t for move in moves if move.detail["step"] == step.name)
    good = [item for item in downloads if item.detail["step"] == step.name and item.detail["outcome"] == "ok"]
    clients = {item.node for item in downloads if item.detail["step"] == step.name}
    found = []
    for start, until in zip(ends, [*ends[1:], float("inf")], strict=True):
        first: dict[str, float] = {}
        for item in good:
            if item.detail["started"] >= start and item.t < until:
                first[item.node] = min(item.t, first.get(item.node, item.t))
        found.append(Seen([end - start for end in first.values()], len(clients - first.keys())))
    return found


def _times(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else "-"


def _counts(items: Sequence[Event]) -> str:
    """Those that were cut at the end are neither."""
    outcomes = [item.detail["outcome"] for item in items if item.detail["outcome"] != "unfinished"]
    good = outcomes.count("ok")
    return f"{good} / {len(outcomes) - good}"


def _turn(move: Event) -> tuple[str, ...]:
    detail = move.detail
    held = "not read" if detail["held"] is None else f"{detail['held']} of {detail['hsdirs']}"
    revisions = sorted(set(detail["revisions"].values()))
    revision = "-" if not revisions else " to ".join(map(str, dict.fromkeys((revisions[0], revisions[-1]))))
    due, handover = f"{detail['due']:.0f}", f"{detail['handover']:.1f}"
    return (detail["step"], due, detail["cause"], detail["leaving"], move.node, handover, held, revision)
