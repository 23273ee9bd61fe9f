"""The section on what dies at a redirected campus: how soon users are sent another way, and what they see meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from testbed.edge.measure.failover import EXPERIMENT
from testbed.measure.stats import Estimate, mean_interval
from testbed.report.blocks import Figure, Section, Table, Text
from testbed.report.figures import PAGE, PALETTE, drawing, entries, legend_above
from testbed.report.numbers import NONE, estimate, plural, seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from testbed.measure.reader import Event, RunReader, Step

NOTE = (
    "Noticed: from the fault to the first thing that the watch did about it. Longest time without a page: from the end "
    "of the last page before to the end of the next one, of the user whose provider the fault is at; a page takes some "
    "time of its own, and a user who asks during the fault waits for the time-out before asking again."
)
WORDS = {
    "link": "provider's link down",
    "silent": "provider's link silent",
    "border": "border router dead",
    "worker": "listener's worker killed",
    "redirector": "listener's nginx killed",
    "rules": "address translation flushed",
    "cernet": "education network's link down",
}


@dataclass(frozen=True)
class Trial:
    """One step of ``edge_failover``."""

    step: Step
    begin: float
    end: float
    fetches: tuple[Event, ...]
    acts: tuple[Event, ...]
    """What the watch did."""

    @property
    def network(self) -> str:
        """Whose users the fault is about."""
        return str(self.step.detail["network"])

    @property
    def noticed(self) -> float | None:
        """Seconds from the fault to the first act, None if there was none."""
        return next((act.t - self.begin for act in self.acts if self.begin <= act.t), None)

    @property
    def back(self) -> float | None:
        """Seconds from the fault's end until users were sent to their own network again; None if they always were."""
        acts = [a for a in self.acts if a.detail.get("network") == self.network and a.detail.get("way") == self.network]
        return next((act.t - self.end for act in acts if act.t >= self.end), None)

    def own(self) -> list[Event]:
        """Fetches of the network's user."""
        return [fetch for fetch in self.fetches if fetch.detail["network"] == self.network]

    def others(self) -> list[Event]:
        """Fetches of everybody else."""
        return [fetch for fetch in self.fetches if fetch.detail["network"] != self.network]

    @property
    def gap(self) -> float:
        """Longest time without a page of the network's user, seconds."""
        pages = [fetch.t for fetch in self.own() if fetch.detail["outcome"] == "ok"]
        return max((b - a for a, b in pairwise(pages)), default=float("nan"))


def trials(run: RunReader) -> list[Trial]:
    """The trials of a run, in their order; those that were cut before the fault was over are left out."""
    fetches, acts, marks = run.events(EXPERIMENT), run.events("edge"), run.events("edge-fault")
    found = []
    for step in run.steps(EXPERIMENT):
        phases = {mark.detail["phase"]: mark.t for mark in step.during(marks)}
        if "begin" in phases and "end" in phases:
            seen, done = tuple(step.during(fetches)), tuple(step.during(acts))
            found.append(Trial(step, phases["begin"], phases["end"], seen, done))
    return found


def sections(run: RunReader) -> list[Section]:
    """The section of a run of ``edge_failover``; none for any other run."""
    found = trials(run)
    if not found:
        return []
    by_fault: dict[str, list[Trial]] = {}
    for trial in found:
        by_fault.setdefault(str(trial.step.detail["fault"]), []).append(trial)
    repeats = plural(max(map(len, by_fault.values())), "repeat")
    rows = [_row(fault, group) for fault, group in by_fault.items()]
    head = ("fault", "noticed after", "longest without a page", "back after", "its users: ok / failed", "others")
    table = Table(head, rows, caption=f"{repeats}; means with their 95 % intervals", text=(0,), console=True)
    first = [group[0] for group in by_fault.values()]
    caption = (
        "Each page of the first repeat, at the time when it was asked for, after the fault. Grey: while the fault "
        "lasted. Users are those of the providers, the first is the one whose provider the fault is at."
    )
    return [
        Section(
            "What dies, and what users see",
            [table, Figure("edge-failover", partial(marks, first), caption), Text(NOTE, kind="note")],
        )
    ]


def _row(fault: str, group: Sequence[Trial]) -> tuple[str, ...]:
    own = [fetch for trial in group for fetch in trial.own()]
    others = [fetch for trial in group for fetch in trial.others()]
    return (
        WORDS.get(fault, fault),
        _mean([trial.noticed for trial in group]),
        _mean([trial.gap for trial in group]),
        _mean([trial.back for trial in group]),
        _counts(own),
        _counts(others),
    )


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    found: Estimate = mean_interval(known)
    return estimate(found, seconds)


def _counts(fetches: Sequence[Event]) -> str:
    ok = sum(fetch.detail["outcome"] == "ok" for fetch in fetches)
    return f"{ok} / {len(fetches) - ok}"


def marks(found: Sequence[Trial]) -> Drawing:
    """A panel a fault: a row a user, a mark a page, coloured by where it came from."""
    figure = drawing(PAGE, 0.6 + 0.75 * len(found))
    panels = figure.subplots(len(found), 1, squeeze=False, sharex=True)[:, 0]
    for axes, trial in zip(panels, found, strict=True):
        users = list(dict.fromkeys(fetch.node for fetch in sorted(trial.fetches, key=lambda fetch: fetch.node)))
        users.sort(key=lambda user: user not in {fetch.node for fetch in trial.own()})
        axes.axvspan(0, trial.end - trial.begin, color="#eeeeee", zorder=0)
        for kind, colour, marker in _KINDS:
            chosen = [fetch for fetch in trial.fetches if _kind(fetch) == kind]
            x = [float(fetch.detail["started"]) - trial.begin for fetch in chosen]
            axes.plot(
                x, [users.index(fetch.node) for fetch in chosen], linestyle="", marker=marker, markersize=3.5,
                color=colour, label=kind,
            )  # fmt: skip
        axes.set_yticks(range(len(users)), users)
        axes.set_ylim(len(users) - 0.5, -0.5)
        axes.set_title(WORDS.get(str(trial.step.detail["fault"]), ""), loc="left")
    panels[-1].set_xlabel("time after the fault (s)")
    legend_above(figure, entries(panels))
    return figure


_KINDS = (
    ("by a provider", PALETTE[2], "o"),
    ("by the education network", PALETTE[1], "s"),
    ("no page", PALETTE[3], "x"),
)


def _kind(fetch: Event) -> str:
    if fetch.detail["outcome"] != "ok":
        return "no page"
    place = str(fetch.detail["place"]).rpartition(":")[0] or str(fetch.detail["place"])
    return "by a provider" if place.replace(".", "").isdigit() else "by the education network"
