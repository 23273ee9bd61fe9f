"""The section on the lab that is a campus and a Tor network: onion clients beside users of the web site."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from testbed.edge.measure.experiment import fetches
from testbed.report.blocks import Section, Table, Text
from testbed.report.numbers import NONE, plural, seconds

if TYPE_CHECKING:
    from testbed.measure.reader import RunReader

EXPERIMENT = "campus-onion"
WORDS = {
    "calm": "nothing",
    "provider": "link to the first provider down",
    "education": "link to the education network down",
}
NOTE = (
    "Each link is down for a third of its step. Onion service instances behind the campus are reached by the education "
    "network alone, so that providers' links do not matter to them. Users of the web site come by their provider's "
    "link or, while it is down, by another; but it is the education network that leads them to the redirector."
)


def sections(run: RunReader) -> list[Section]:
    """Sections for a run of ``campus_onion``; none for any other run."""
    steps = run.steps(EXPERIMENT)
    if not steps:
        return []
    downloads = run.events("download")
    rows = []
    for step in steps:
        onion = [event.detail for event in downloads if event.detail["step"] == step.name]
        times = [told["last_byte"] - told["started"] for told in onion if told["outcome"] == "ok"]
        web = fetches(run, step.name)
        good = [fetch.total for fetch in web if fetch.outcome == "ok" and fetch.total is not None]
        rows.append(
            (
                WORDS.get(step.detail["what"], step.name),
                f"{len(times)} / {len(onion) - len(times)}",
                seconds(median(times)) if times else NONE,
                seconds(max(times)) if times else NONE,
                f"{len(good)} / {len(web) - len(good)}",
                seconds(median(good)) if good else NONE,
            )
        )
    head = (
        "what happens",
        "onion downloads ok / failed",
        "median",
        "slowest",
        "web pages ok / failed",
        "median",
    )
    table = Table(head, rows, caption=f"{plural(len(steps), 'step')}, in order.", console=True)
    return [Section("Onion service and web site", [table, Text(NOTE, "note")])]
