"""What came of a user's request, and what his browser keeps of it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from testbed.measure.probes.http import HttpResult

_AGE = re.compile(r"(?:^|[\s,])max-age=(\d+)")


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request of a user, redirects included: each of its requests in order."""

    client: str
    host: str
    hops: tuple[HttpResult, ...]

    @property
    def ok(self) -> bool:
        """Whether the last answer came whole and with 200."""
        return self.hops[-1].outcome == "ok" and self.hops[-1].status == 200

    @property
    def redirected(self) -> bool:
        """Whether the site was reached after a redirect."""
        return len(self.hops) > 1

    @property
    def outcome(self) -> str:
        """In one word: ``ok``, ``http-N``, or how the last connection failed."""
        last = self.hops[-1]
        return last.outcome if last.outcome != "ok" or last.status == 200 else f"http-{last.status}"

    @property
    def total(self) -> float | None:
        """Seconds from first to last byte, over all requests."""
        totals = [hop.total for hop in self.hops]
        return sum(total for total in totals if total is not None) if None not in totals else None

    @property
    def transfer(self) -> float | None:
        """Seconds of the last request alone: the transfer after redirection."""
        return self.hops[-1].total

    @property
    def bytes(self) -> int:
        """Of the last answer's body."""
        return self.hops[-1].bytes

    @property
    def place(self) -> str:
        """Host and port of the last request, as its URL has them."""
        return urlsplit(self.hops[-1].final_url).netloc


@dataclass(frozen=True, slots=True)
class Traced:
    """A fetch and the way of each of its requests."""

    fetch: Fetch
    ways: tuple[tuple[str, ...], ...]
    """The nodes on the way of each request, from the user on."""
    exchange_bytes: int
    """Bytes between networks meanwhile, headers included, both directions."""


class Memory:
    """Redirects that one user's browser keeps, each for its URL and as long as the answer allows (RFC 9111, 5.2.2.1).

    Who gets no page reloads, and then a browser asks anew (5.2.1.4): what led nowhere is forgotten.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, float]] = {}

    def place(self, url: str) -> str | None:
        """Where a request for ``url`` goes without asking; None where nothing is kept, or not any more."""
        location, until = self._kept.get(url, ("", 0.0))
        return location if time.monotonic() < until else None

    def note(self, url: str, fetch: Fetch) -> None:
        """Keep the redirect of ``url``, if the fetch has one that may be kept, or forget it."""
        first = fetch.hops[0]
        age = _AGE.search(first.headers.get("cache-control", ""))
        if not fetch.ok:
            self._kept.pop(url, None)
        elif first.url == url and first.redirects and age:
            self._kept[url] = (first.redirects[-1].location, first.started + int(age[1]))
