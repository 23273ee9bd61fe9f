"""What scenarios of the edge do again and again: a user's visit of a site, asked, fetched, and its way read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from testbed.edge.dns.ask import query
from testbed.edge.measure.repeated import Repeated
from testbed.edge.measure.traffic import way_of
from testbed.edge.network import LEAST_ANSWER, Edge
from testbed.edge.plan import names
from testbed.edge.webserver import PAGE

if TYPE_CHECKING:
    from testbed.measure.measure import Measure
    from testbed.measure.reader import RunReader


@dataclass(frozen=True, slots=True)
class Visit:
    """One fetch of a user."""

    client: str
    network: str
    resolver: str
    """Network whose resolver was asked."""
    host: str
    outcome: str
    address: str
    """What the name was said to be."""
    entry: str
    """Network by whose border router, or mirror, most of it came; empty if nothing did."""
    lookup: float | None
    """Seconds for the name."""
    total: float | None
    """Seconds of all requests, without the lookup."""
    transfer: float | None
    """Seconds of the last request alone."""
    exchange_bytes: int
    """Bytes between networks meanwhile, both directions, headers included."""


def visit(edge: Edge, measure: Measure, client: str, host: str, path: str) -> Visit:
    """Look a name up, fetch ``path``, and record all of it as event ``edge-visit``."""
    user = edge.world.client(client)
    asked = query(edge, client, host)
    fetch, links = edge.measure(lambda: edge.fetch(client, host, path))
    one = Visit(
        client=client,
        network=user.network,
        resolver=user.resolver,
        host=host,
        outcome=fetch.outcome,
        address=asked.addresses[0] if asked.addresses else asked.outcome,
        entry=entry_of(edge, way_of(links, client, LEAST_ANSWER)),
        lookup=asked.seconds,
        total=fetch.total,
        transfer=fetch.transfer,
        exchange_bytes=edge.exchange_bytes(links),
    )
    detail = asdict(one)
    measure.event("edge-visit", detail.pop("client"), path=path, **detail)
    return one


def entry_of(edge: Edge, way: list[str]) -> str:
    """The network by whose border router, or mirror, a way leads."""
    for network in edge.world.networks:
        if network.border in way or names.mirror(network.name) in way:
            return network.name
    return ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One fetch of ``Users``, times in seconds since the run's start."""

    client: str
    network: str
    started: float
    ended: float
    outcome: str
    total: float | None
    """Seconds of all requests."""


class Users(Repeated):
    """Users who fetch one page again and again, each in a thread of its own; a context.

    Every fetch is recorded as event ``edge-fetch`` of ``step`` when it is over.
    """

    def __init__(
        self, edge: Edge, measure: Measure, clients: Sequence[str], step: str, *, period: float, timeout: float
    ):
        """A user starts a fetch every ``period`` seconds, and gives it up after ``timeout``."""
        super().__init__(clients, period)
        self.seen: list[Fetched] = []
        self._edge, self._measure, self._step, self._timeout = edge, measure, step, timeout

    def _fetch(self, user: str, begun: float) -> None:
        run, host = self._measure.run, self._edge.world.sites[0].host
        fetch = self._edge.fetch(user, host, PAGE, timeout=self._timeout)
        now = time.monotonic()
        network = self._edge.world.client(user).network
        started, ended = run.since_start(begun), run.since_start(now)
        self.seen.append(Fetched(user, network, started, ended, fetch.outcome, fetch.total))
        run.event(
            "edge-fetch",
            user,
            t=now,
            step=self._step,
            network=network,
            started=round(started, 6),
            outcome=fetch.outcome,
            total=fetch.total,
        )


def fetches(run: RunReader, step: str) -> list[Fetched]:
    """What ``Users`` fetched in a step, in the order in which it was done."""
    found = []
    for event in run.events("edge-fetch"):
        what = event.detail
        if what["step"] == step:
            found.append(Fetched(event.node, what["network"], what["started"], event.t, what["outcome"], what["total"]))
    return found
