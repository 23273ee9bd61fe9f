"""Report section of an onion service whose instances are a rotating pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.measure.reader import Event, RunReader
from testbed.measure.stats import median
from testbed.report.blocks import Block, Section, Table, Text
from testbed.report.numbers import NONE, plural
from testbed.tor.report.trials import Introduction, Trial, grouped, trials

EXPERIMENT = "onion-pool"
EVENT = "onion_rotation"
"""A migration, at the moment in which the instance that served before began to leave or was ended; its node is the new
one."""
KILLED = "onion_killed"
"""An instance in service was killed by the scenario."""
WRONG = {"corrupt", "long"}
"""Outcomes of downloads with other bytes than expected; one that the end of an instance cuts is short, and failed."""
STALL = 31
"""Seconds that a client of this network waits for an instance that does not come, as measured."""
TEXT = (
    "Nothing is published about a rotating onion service. Hand-over is from when a migration was due until all HSDirs "
    "had acknowledged the new instance's descriptor; the old one served meanwhile. Served again is from the moment in "
    "which the old instance began to leave, or was ended or killed, until the last byte of each client's first "
    "complete download that began afterwards, with its pause between requests. Clients that had not been served when "
    "the next migration began count as late. Fresh clients never asked before; known ones have the descriptor of the "
    "instance that they used last."
)
WHY = (
    "Why known clients are out for a while. A client keeps a descriptor for hours and does not look for a newer one "
    "while the introduction points in it answer, so however long both instances serve (overlap), it moves only when "
    "the old one's introduction points refuse it. Then it tries the others of that descriptor, fetches the new one, "
    "and is served, which takes a second or two. An introduction point that has not heard yet that the instance is "
    f"gone acknowledges instead, and the client waits for nobody, {STALL} s in this network: a stall. An instance that "
    "just ends leaves such points behind; one that takes leave closes its introduction circuits and is still there "
    "for those who were being introduced. Relays tell each other of the end of a circuit with the next cell on the "
    "connection between them, so a network in which nothing else moves hears of it late, whatever the instance does "
    "(traffic). Counts are from the clients' own logs (level info, domain rend)."
)


@dataclass(frozen=True)
class Client:
    """What one known client met after one migration."""

    again: float | None
    """Seconds until it was served again; None: not before the next migration."""
    moved: bool
    """The new instance had served it before the old one left."""
    marks: Sequence[Introduction]

    @property
    def stalls(self) -> int:
        """Waits for an instance that did not come."""
        return self.count("stalled")

    def count(self, what: str) -> int:
        """How often it logged this."""
        return sum(mark.what == what for mark in self.marks)


def sections(run: RunReader) -> list[Section]:
    """One section for runs of ``onion_pool``; none for any other run."""
    moves = run.events(EVENT)
    if not moves:
        return []
    killed = run.events(KILLED)
    rows: list[tuple[str, ...]] = []
    why: list[tuple[str, ...]] = []
    turns: list[tuple[str, ...]] = []
    for manner, found in grouped(trials(run, EXPERIMENT), _manner).items():
        names = {trial.step.name for trial in found}
        mine = [move for move in moves if move.detail["step"] in names]
        asked = [item for trial in found for item in trial.downloads]
        first = [item for trial in found for item in trial.fresh]
        outcomes = [item.outcome for item in asked], [item.outcome for item in first]
        clients = [client for trial in found for client in after_moves(trial, moves, killed)]
        again = [client.again for client in clients if client.again is not None]
        rows.append(
            (
                manner,
                str(len(mine)),
                _times([float(move.detail["handover"]) for move in mine]),
                _times(again),
                str(len(clients) - len(again)),
                *map(_counts, outcomes),
                str(sum(outcome in WRONG for outcome in (*outcomes[0], *outcomes[1]))),
            )
        )
        why += _why(manner, clients)
        turns += [_turn(move) for move in mine]
    repeats = plural(max((step.repeat for step in run.steps(EXPERIMENT)), default=1), "repeat")
    head = (
        *("end of the old one", "moves", "hand-over, s", "served again, s", "late"),
        *("known: ok / failed", "fresh: ok / failed", "wrong bytes"),
    )
    caption = f"By signal, overlap, leave and other traffic ({repeats}); times are the median (least to most)"
    of_turns = (
        *("step", "due, s", "cause", "from", "to", "hand-over, s"),
        *("HSDirs with the new one", "given it again", "revision"),
    )
    about = "Each migration; when it was due is the schedule's time. HSDirs are read just before the old one leaves."
    blocks: list[Block] = [
        Text(TEXT),
        Table(head, rows, caption=caption, text=(0,), console=True),
        Text(WHY),
        Table(
            ("end of the old one", "stalls", "clients", "served again, s", "refusals", "fetches", "moved before"),
            why,
            caption="Known clients by how often they stalled: one line for each client and migration. Refusals and "
            "descriptors fetched are medians; moved before: the new instance had served them during the overlap",
            text=(0,),
        ),
        Table(of_turns, turns, caption=about, text=(0, 2, 3, 4, 7)),
    ]
    return [Section("Onion service that rotates", blocks)]


def after_moves(trial: Trial, moves: Sequence[Event], killed: Sequence[Event]) -> list[Client]:
    """What each client of a step saw after each of its migrations, until the next.

    A migration because the instance was killed begins with that.
    """
    mine = [move for move in moves if move.detail["step"] == trial.step.name]
    deaths = [event for event in killed if event.detail["step"] == trial.step.name]
    begins = [_begin(move, deaths) for move in mine]
    names = sorted({download.client for download in trial.downloads})
    found = []
    for move, start, until in zip(mine, begins, [*begins[1:], float("inf")], strict=False):  # in a cut step none
        for name in names:
            got = [item for item in trial.downloads if item.client == name and item.ok]
            later = [item.ended for item in got if item.started >= start and item.ended < until]
            before = [item.instance for item in got if item.ended <= start]
            served = min(later, default=None)
            end = until if served is None else served
            marks = [mark for mark in trial.introductions if mark.client == name and start <= mark.t < end]
            moved = bool(before) and before[-1] == move.node
            found.append(Client(None if served is None else served - start, moved, marks))
    return found


def _begin(move: Event, deaths: Sequence[Event]) -> float:
    if move.detail["cause"] != "died":
        return move.t
    return max(
        (event.t for event in deaths if event.node == move.detail["leaving"] and event.t <= move.t), default=move.t
    )


def _manner(trial: Trial) -> str:
    signal, overlap, leave, traffic = (trial.word(key) for key in ("signal", "overlap", "leave", "traffic"))
    return f"{signal}, both {overlap}, leave {leave}, " + ("quiet" if traffic == "none" else f"traffic {traffic}")


def _why(manner: str, clients: Sequence[Client]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for stalls, mine in sorted(grouped(clients, lambda client: client.stalls).items()):
        again = [client.again for client in mine if client.again is not None]
        rows.append(
            (
                manner,
                str(stalls),
                str(len(mine)),
                _times(again),
                f"{median([client.count('nack') for client in mine]):.0f}",
                f"{median([client.count('fetch') for client in mine]):.0f}",
                str(sum(client.moved for client in mine)),
            )
        )
    return rows


def _times(values: Sequence[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else NONE


def _counts(outcomes: Sequence[str]) -> str:
    """Those that were cut at the end are neither."""
    known = [outcome for outcome in outcomes if outcome != "unfinished"]
    good = known.count("ok")
    return f"{good} / {len(known) - good}"


def _turn(move: Event) -> tuple[str, ...]:
    detail = move.detail
    held = "not read" if detail["held"] is None else f"{detail['held']} of {detail['hsdirs']}"
    revisions = sorted(set(detail["revisions"].values()))
    revision = NONE if not revisions else " to ".join(map(str, dict.fromkeys((revisions[0], revisions[-1]))))
    due, handover = f"{detail['due']:.0f}", f"{detail['handover']:.1f}"
    again = ", ".join(detail["repaired"]) or NONE
    return (detail["step"], due, detail["cause"], detail["leaving"], move.node, handover, held, again, revision)
