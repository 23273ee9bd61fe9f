"""Users who ask for a page again and again while something breaks; what each of them saw goes to the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.edge.measure.fetch import Memory
from testbed.edge.measure.repeated import Repeated
from testbed.edge.network import Edge
from testbed.errors import WaitTimeout

if TYPE_CHECKING:
    from testbed.measure.measure import Measure

EXPERIMENT = "edge-failover"


class Users(Repeated):
    """One thread a user, from entering the context to leaving it. Each fetch is an event ``edge-failover``.

    Users keep redirects that may be kept, as browsers do.

    A user begins a fetch ``period`` seconds after the one before began, or as soon as it is over, and gives up after
    ``timeout``.
    """

    def __init__(self, edge: Edge, measure: Measure, users: Sequence[str], *, period: float, timeout: float) -> None:
        super().__init__(users, period)
        self._edge, self._measure, self._timeout = edge, measure, timeout
        self._outcomes: dict[str, list[str]] = {user: [] for user in users}
        self._memories = {user: Memory() for user in users}

    def failures(self, user: str) -> list[str]:
        """The outcomes of a user's fetches that were no page."""
        return [outcome for outcome in self._outcomes[user] if outcome != "ok"]

    def last(self, user: str) -> str:
        """The outcome of a user's last fetch."""
        return self._outcomes[user][-1]

    def await_fetches(self, count: int, timeout: float = 60) -> None:
        """Wait until every user has had ``count`` more pages; WaitTimeout says who has not."""
        wanted = {user: self._pages(user) + count for user in self._outcomes}
        deadline = time.monotonic() + timeout
        while lacking := [user for user, pages in wanted.items() if self._pages(user) < pages]:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise WaitTimeout(f"{count} pages for every user", timeout, f"too few for {', '.join(lacking)}")
            time.sleep(0.02)

    def _pages(self, user: str) -> int:
        return self._outcomes[user].count("ok")

    def _fetch(self, user: str, begun: float) -> None:
        run, host = self._measure.run, self._edge.world.sites[0].host
        fetch = self._edge.fetch(user, host, timeout=self._timeout, memory=self._memories[user])
        run.event(
            EXPERIMENT,
            user,
            network=self._edge.world.client(user).network,
            started=round(run.since_start(begun), 6),
            outcome=fetch.outcome,
            total=fetch.total,
            place=fetch.place,
        )
        self._outcomes[user].append(fetch.outcome)
