"""The shared storage that the competition's variables are in: one record, changed only by compare-and-set.

Who serves is what the record says, so there is never a doubt for longer than it takes to read it. Each change makes a
new version; a change that was computed from an older version is refused. Messages between servers are only hints that
the record has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from testbed.errors import TestbedError
from testbed.pool.agents.competition import Candidate
from testbed.pool.agents.machine import State

DETECTIONS = 16
"""The latest that the record keeps."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the others know of a server. Times in microseconds of pool time."""

    state: State
    since: int
    """When it came into this state."""
    attacks: int = 0
    """In its last service period."""
    alive_until: int = 0
    """It is counted upon until then; it says so again before."""


@dataclass(frozen=True, slots=True)
class Record:
    """The shared variables."""

    epoch: int = 0
    """Counts the times that the service was taken: a dispatcher that follows the highest never goes back."""
    holder: str | None = None
    """The server that serves, or is about to."""
    since: int = 0
    """When it was given the service: the timer counts from here."""
    lease: int = 0
    """Nobody else may take the service before; the holder makes it longer while it is well."""
    winner: str | None = None
    """Who won the competition for the migration that is due."""
    attacks: int = 0
    """Noticed in this service period."""
    detections: tuple[int, ...] = ()
    """When attacks were noticed, the latest last."""
    servers: Mapping[str, Entry] = field(default_factory=dict)

    def with_entry(self, name: str, entry: Entry) -> Record:
        """The record with this entry for the server."""
        return replace(self, servers={**self.servers, name: entry})

    def candidates(self, now: int) -> list[Candidate]:
        """Servers that are ready and counted upon, except the holder."""
        return [
            Candidate(name, entry.since, entry.attacks)
            for name, entry in self.servers.items()
            if entry.state is State.READY and entry.alive_until > now and name != self.holder
        ]

    def elected(self, now: int) -> str | None:
        """The winner, as long as it can take the service."""
        return self.winner if any(candidate.name == self.winner for candidate in self.candidates(now)) else None

    def given(self, to: str | None, now: int, lease: int, epoch: int) -> Record:
        """The service goes to another server, or to none, and a new service period begins."""
        if to is None:
            return replace(self, holder=None, since=now, lease=0, winner=None, attacks=0)
        taken = self.with_entry(to, replace(self.servers[to], state=State.SERVICE, since=now))
        return replace(taken, epoch=epoch, holder=to, since=now, lease=now + lease, winner=None, attacks=0)

    def detected(self, now: int, attacks: int) -> Record:
        """Attacks on the holder were noticed."""
        return replace(self, attacks=self.attacks + attacks, detections=(*self.detections, now)[-DETECTIONS:])


class Seen(NamedTuple):
    """What a read gives."""

    version: int
    record: Record
    opened: int
    """When the store began to answer, after its start or restart: leases that ran out while it was away count on."""


class StoreLost(TestbedError):
    """The store did not answer. A change that was asked for may have been made or not, or may yet be."""


class Store(Protocol):
    """Shared storage with one record. Each call is answered at once or raises ``StoreLost``."""

    def read(self) -> Seen:
        """The record and its version."""

    def swap(self, version: int, record: Record) -> bool:
        """Make ``record`` the current one if ``version`` still is; whether that was so."""


class MemoryStore:
    """A store in this process, for pools in virtual time. For one thread only."""

    def __init__(self, opened: int = 0) -> None:
        self._version, self._record, self.opened = 0, Record(), opened

    def read(self) -> Seen:
        """See ``Store``."""
        return Seen(self._version, self._record, self.opened)

    def swap(self, version: int, record: Record) -> bool:
        """See ``Store``."""
        if version != self._version:
            return False
        self._version, self._record = version + 1, record
        return True
