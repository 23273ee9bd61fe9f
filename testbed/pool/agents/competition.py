"""Who takes over. A policy is a pure function of what all servers can read, so each finds the same winner by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Candidate(NamedTuple):
    """A server that is ready, as the others see it."""

    name: str
    ready_since: int
    """Pool time in microseconds."""
    attacks: int
    """That were noticed against it in its last service period; 0 if it never served."""


Score = Callable[[Candidate], float]
"""What counts in the competition; the least wins."""


def fewest_attacks(candidate: Candidate) -> float:
    """The published example: it did best that was attacked least."""
    return candidate.attacks


class Policy(Protocol):
    """A way to choose the next server."""

    @property
    def rotates(self) -> bool:
        """Whether migrations happen at all."""

    @property
    def central(self) -> bool:
        """Whether one controller decides, and not each server for itself."""

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """The name of the next server; ``ready`` holds at least one. ``epoch`` counts the migrations so far."""


class Competition:
    """The best score wins; of equal scores who has been ready longest; then the first by name."""

    rotates = True
    central = False

    def __init__(self, score: Score = fewest_attacks) -> None:
        self._score = score

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """See ``Policy``."""
        score = self._score
        return min(ready, key=lambda candidate: (score(candidate), candidate.ready_since, candidate.name)).name


class RoundRobin:
    """The next in a fixed order that is ready."""

    rotates = True
    central = False

    def __init__(self, order: Sequence[str]) -> None:
        self._place = {name: place for place, name in enumerate(order)}

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """See ``Policy``."""
        start = self._place[leaving] + 1 if leaving is not None else 0
        return min((candidate.name for candidate in ready), key=lambda n: (self._place[n] - start) % len(self._place))


class RandomChoice:
    """Any that is ready, by lot; the lot is drawn from seed and epoch, so that all servers draw the same."""

    rotates = True
    central = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """See ``Policy``."""
        names = sorted(candidate.name for candidate in ready)
        digest = hashlib.blake2b(f"lot {self._seed} {epoch}".encode(), digest_size=8).digest()
        return names[int.from_bytes(digest, "big") % len(names)]


class CentralController:
    """One controller chooses as another policy would. If it is gone, the service does not move any more."""

    rotates = True
    central = True

    def __init__(self, inner: Policy | None = None) -> None:
        self._inner = inner or Competition()

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """See ``Policy``."""
        return self._inner.winner(ready, leaving, epoch)


class NoRotation:
    """The first server serves until it is gone; what rotation is compared with."""

    rotates = False
    central = False

    def winner(self, ready: Sequence[Candidate], leaving: str | None, epoch: int) -> str:
        """See ``Policy``."""
        return min(ready, key=lambda candidate: (candidate.ready_since, candidate.name)).name
