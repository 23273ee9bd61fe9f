"""The section on smart DNS: by which network users came in, with answers by the resolver or by the client."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from testbed.report.blocks import Section, Table, Text
from testbed.report.numbers import NONE, plural, seconds

if TYPE_CHECKING:
    from testbed.measure.reader import Event, RunReader

EXPERIMENT = "edge-dns"
WORDS = {"resolver": "by the resolver's network", "subnet": "by the client's subnet (RFC 7871)"}
NOTE = (
    "Published (DOI 10.3969/j.issn.1007-1423.2015.28.010): smart DNS is cheap and has two faults. An answer has no "
    "port, so scarce public addresses cannot be shared by many sites; and the resolver's address decides, so a user "
    "whose resolver sits in another network is sent the wrong way. Measured here: the network by whose border router "
    "most of the page came in, read off the links' counters. The client's subnet in the question mends the second "
    "fault alone."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``edge_dns_faults``; none for any other run."""
    steps = run.steps(EXPERIMENT)
    if not steps:
        return []
    found: dict[tuple[str, str], dict[str, list[Event]]] = {}
    visits = run.events("edge-visit")
    for step in steps:
        for event in step.during(visits):
            cells = found.setdefault((event.node, event.detail["host"]), {})
            cells.setdefault(step.detail["answers"], []).append(event)
    answers = [word for word in WORDS if any(step.detail.get("answers") == word for step in steps)]
    repeats = plural(max(step.repeat for step in steps), "repeat")
    return [Section("Names and ways", [_shares(found, answers), _visits(found, answers, repeats), Text(NOTE, "note")])]


def _shares(found: dict[tuple[str, str], dict[str, list[Event]]], answers: list[str]) -> Table:
    """How many visits of users of providers came in by the user's own provider."""
    rows = []
    for word in answers:
        cells: list[str] = []
        for foreign in (False, True):
            visits = [
                event
                for by_answer in found.values()
                for event in by_answer.get(word, [])
                if (event.detail["resolver"] != event.detail["network"]) == foreign
            ]
            near = sum(event.detail["entry"] == event.detail["network"] for event in visits)
            cells.append(f"{near} of {len(visits)}" if visits else NONE)
        rows.append((WORDS[word], *cells))
    head = ("answers", "resolver in the own network: near", "resolver elsewhere: near")
    return Table(head, rows, caption="Visits that came in by the user's own network, all sites.", console=True)


def _visits(found: dict[tuple[str, str], dict[str, list[Event]]], answers: list[str], repeats: str) -> Table:
    head = ["user", "resolver in", "site"]
    for word in answers:
        head += [f"came by ({word})", "median time"]
    rows = []
    for (client, host), by_answer in found.items():
        resolver = next(iter(by_answer.values()))[0].detail["resolver"]
        row = [client, resolver, host]
        for word in answers:
            events = by_answer.get(word, [])
            ways = dict.fromkeys(event.detail["entry"] or event.detail["outcome"] for event in events)
            times = [event.detail["total"] for event in events if event.detail["outcome"] == "ok"]
            row += [", ".join(ways) or NONE, seconds(median(times)) if times else NONE]
        rows.append(row)
    text = {0, 1, 2, *(3 + 2 * index for index in range(len(answers)))}
    return Table(head, rows, caption=f"Each user and site, page alone without the lookup; {repeats}.", text=text)
