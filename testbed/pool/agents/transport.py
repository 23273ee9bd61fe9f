"""Messages between servers. Losing, doubling or delaying one costs time and nothing else: the store has the truth."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


class Kind(Enum):
    """What a message says."""

    WON = "won"
    """The sender won the competition; the others go back to waiting, and who serves hands over."""
    TAKEN = "taken"
    """The service has been given to ``server``."""
    READY = "ready"
    """The sender is ready; who is suspended can be relieved."""


class Message(NamedTuple):
    """To all servers of the pool."""

    kind: Kind
    sender: str
    epoch: int
    """Of the sender's record."""
    server: str
    """Whom it is about."""


class Transport(Protocol):
    """A server's way to the others. What arrives is given to ``Agent.receive`` on the agent's clock."""

    def broadcast(self, message: Message) -> None:
        """Send to all others. Returns at once, and says nothing about arrival."""
