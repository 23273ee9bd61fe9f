"""The section on scale: sizes of configurations, changes under load, and the redirector beside plain redirects."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from testbed.edge.measure.contest import NGINX
from testbed.report.blocks import Block, Section, Table, Text
from testbed.report.numbers import NONE, plural, seconds

if TYPE_CHECKING:
    from testbed.measure.reader import Event, RunReader

TARGET = 0.95
WORDS = {"new": "a connection for each request", "kept": "connections kept open"}
NOTE = (
    "Nothing was published on scale. The redirector's table grows with sites alone, the inner router's set with "
    "prefixes alone; views of smart DNS grow with their product, since each name has a list of all prefixes. Requests "
    "a second of a core are requests for each second of processor time that the server used: unlike those of a clock "
    f"they do not depend on what else runs here. The aim is at least {TARGET} of plain nginx, which knows no sites."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``edge_scale``; none for any other run."""
    sized, changes, loads = (run.events(kind) for kind in ("edge-sizes", "edge-change", "edge-load"))
    if not sized:
        return []
    blocks: list[Block] = [_sizes(sized[-1])]
    if changes:
        took = [float(event.detail["seconds"]) for event in changes]
        blocks.append(
            Text(
                f"{plural(len(took), 'change')} of a provider's table under load: users were sent the new way after "
                f"{seconds(median(took))} (median), {seconds(max(took))} at most; no request was lost."
            )
        )
    if loads:
        blocks.append(_loads(loads))
    return [Section("Scale", [*blocks, Text(NOTE, "note")])]


def _sizes(event: Event) -> Table:
    what = event.detail
    rows = [(name, f"{int(size) / 1000:,.0f}".replace(",", "\u202f")) for name, size in what["bytes"].items()]
    caption = f"{plural(what['sites'], 'site')}, {what['prefixes']} prefixes."
    return Table(("configuration", "kB"), rows, caption=caption)


def _loads(loads: Sequence[Event]) -> Table:
    rows = []
    for connection, words in WORDS.items():
        mine = [event for event in loads if event.detail["connection"] == connection]
        base = {_turn(event): _rate(event) for event in mine if event.detail["server"] == NGINX}
        for server in dict.fromkeys(event.detail["server"] for event in mine):
            told = [event for event in mine if event.detail["server"] == server]
            ratios = [_rate(event) / base[_turn(event)] for event in told if base.get(_turn(event))]
            clock = median(event.detail["requests"] / event.detail["seconds"] for event in told)
            core = median(_rate(event) for event in told)
            share = f"{median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else NONE
            rows.append((words, server, f"{clock:.0f}", f"{core:.0f}", share))
    head = ("connections", "server", "requests/s by the clock", "requests/s of a core", "of plain nginx, by turns")
    return Table(head, rows, caption="Medians over all turns.", text=(0, 1), console=True)


def _turn(event: Event) -> int:
    return int(event.detail["round"])


def _rate(event: Event) -> float:
    cpu = float(event.detail["cpu"])
    return float(event.detail["requests"]) / cpu if cpu > 0 else 0.0
