"""What is known of one set of responsible HSDirs: who is planned where, what each one took, what failed."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.tor.distribute.document import Made
from testbed.tor.distribute.journal import Journal
from testbed.tor.protocol.blinding import BlindedSigner
from testbed.tor.protocol.hsdir import Responsible, Router
from testbed.tor.protocol.timeperiod import TimePeriods

BACK_OFF = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds from the first, second ... failure of an HSDir to the next attempt."""
DOWN_AFTER = 2
"""Failures in a row after which an HSDir counts as gone, and the instances are spread over the others."""

Names = tuple[str, ...]
"""Instances whose introduction points are in one descriptor."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An HSDir that did not take a descriptor, or did not answer."""

    count: int
    reason: str
    due: float
    """When to try again (``time.monotonic()``)."""


@dataclass
class Held:
    """What an HSDir has taken."""

    made: Made
    names: Names
    verified: float | None = None
    """When it was last fetched back and was this."""


@dataclass
class Shelf:
    """The HSDirs of one of the service's two descriptors."""

    responsible: Responsible
    signer: BlindedSigner
    fetched: bool
    """Whether it is the descriptor that clients ask for, so that it can be fetched back."""
    run_start: int
    """From when on tor counts its revisions, seconds since the epoch."""
    periods: TimePeriods
    """Of the network."""
    plan: dict[str, Names] = field(default_factory=dict)
    """Instances by fingerprint of the HSDir."""
    sent: dict[str, Held] = field(default_factory=dict)
    """What each HSDir was last sent, whether or not it took it."""
    held: dict[str, Held] = field(default_factory=dict)
    failing: dict[str, Failure] = field(default_factory=dict)
    placed_at: float | None = None
    looked_at: float = 0.0
    """When the HSDirs were last asked."""
    urgent: str = ""
    """Why everything has to be placed anew, whatever is held."""
    settled: bool = False
    """Whether nothing had to be uploaded when that was last looked at. What has just come back may change the plan."""

    @property
    def fingerprints(self) -> list[str]:
        """The HSDirs, in the order of replicas and of the ring."""
        return [router.fingerprint for router in self.responsible.hsdirs]

    def router(self, fingerprint: str) -> Router:
        """One of the HSDirs."""
        return next(router for router in self.responsible.hsdirs if router.fingerprint == fingerprint)

    def available(self) -> list[str]:
        """HSDirs that are not known to be gone."""
        return [item for item in self.fingerprints if self.failures(item) < DOWN_AFTER]

    def failures(self, fingerprint: str) -> int:
        """How often in a row an HSDir has failed."""
        return self.failing[fingerprint].count if fingerprint in self.failing else 0

    def is_asked_with(self, valid_after: str) -> bool:
        """Whether tors whose consensus became valid then ask for this descriptor.

        In either half clients ask for the period that the consensus lies in.
        """
        moment = calendar.timegm(time.strptime(valid_after, "%Y-%m-%d %H:%M:%S"))
        return self.periods.number(moment) == self.responsible.period

    def due(self, now: float) -> list[str]:
        """HSDirs that are to be tried again by now."""
        return [item for item, failure in self.failing.items() if failure.due <= now]

    def fail(self, fingerprint: str, reason: str, journal: Journal, *, at_once: bool = False) -> None:
        """Note a failure, and when to try again."""
        count = self.failures(fingerprint) + 1
        pause = 0.0 if at_once else BACK_OFF[min(count, len(BACK_OFF)) - 1]
        self.failing[fingerprint] = Failure(count, reason, time.monotonic() + pause)
        name = self.router(fingerprint).nickname
        journal.event("upload_failed", name, reason=reason, attempt=count, again_in=pause)
        if count == DOWN_AFTER:
            journal.event("hsdir_down", name, reason=reason)

    def succeed(self, fingerprint: str, journal: Journal) -> None:
        """Note that an HSDir works."""
        failure = self.failing.pop(fingerprint, None)
        if failure is not None:
            journal.event("upload_retried", self.router(fingerprint).nickname, attempts=failure.count + 1)
            if failure.count >= DOWN_AFTER:
                journal.event("hsdir_back", self.router(fingerprint).nickname)

    def compared_with(self, responsible: Responsible) -> tuple[list[str], list[str]]:
        """Nicknames of HSDirs that joined, and of those that left."""
        new = {router.fingerprint: router.nickname for router in responsible.hsdirs}
        old = {router.fingerprint: router.nickname for router in self.responsible.hsdirs}
        return [new[item] for item in new if item not in old], [old[item] for item in old if item not in new]

    def moved_to(self, responsible: Responsible, *, fetched: bool, run_start: int) -> Shelf:
        """The same after a new consensus: what is known of HSDirs that stay is kept."""
        stay = {router.fingerprint for router in responsible.hsdirs}
        return replace(
            self,
            responsible=responsible,
            fetched=fetched,
            run_start=run_start,
            plan={item: names for item, names in self.plan.items() if item in stay},
            sent={item: sent for item, sent in self.sent.items() if item in stay},
            held={item: held for item, held in self.held.items() if item in stay},
            failing={item: failure for item, failure in self.failing.items() if item in stay},
        )

    def shown(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "period": self.responsible.period,
            "fetched": self.fetched,
            "hsdirs": [self._shown(router) for router in self.responsible.hsdirs],
        }

    def _shown(self, router: Router) -> dict[str, Any]:
        held, failure = self.held.get(router.fingerprint), self.failing.get(router.fingerprint)
        return {
            "nickname": router.nickname,
            "fingerprint": router.fingerprint,
            "planned": list(self.plan.get(router.fingerprint, ())),
            "holds": list(held.names) if held else [],
            "revision": held.made.revision if held else None,
            "verified": bool(held and held.verified is not None),
            "trouble": failure.reason if failure else "",
        }

    def complete(self, live: Iterable[str]) -> bool:
        """Whether every HSDir holds what is planned, verified where possible, nobody is left out, and that stays so."""
        names = {name for held in self.held.values() for name in held.names}
        return (
            bool(self.plan)
            and self.settled
            and not self.urgent
            and not self.failing
            and names == set(live)
            and all(self._as_planned(item) for item in self.fingerprints)
        )

    def _as_planned(self, fingerprint: str) -> bool:
        held = self.held.get(fingerprint)
        if held is None or held.names != self.plan.get(fingerprint):
            return False
        return held.verified is not None or not self.fetched
