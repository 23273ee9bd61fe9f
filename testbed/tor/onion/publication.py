"""What becomes of the descriptors that one instance uploads: acknowledged by an HSDir, or refused."""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass, field

from testbed.tor.protocol.descriptor import DescriptorEvent, parse_event
from testbed.tor.protocol.hsdir import Responsible


def descriptor_name(responsible: Responsible) -> str:
    """How tor names this one of a service's two descriptors in its events: the blinded key."""
    return base64.b64encode(responsible.blinded_key).decode().rstrip("=")


@dataclass
class Publication:
    """The uploads of one instance since it was started, fed with its HS_DESC events.

    tor says of an upload's beginning which of the two descriptors it is, of its end only the HSDir; an HSDir may be
    responsible for both.
    """

    instance: str
    address: str
    """Without ``.onion``."""
    descriptor: str
    """The one that clients fetch; see ``descriptor_name``."""
    begun: Counter[str] = field(default_factory=Counter)
    """Uploads of that descriptor, by fingerprint of the HSDir."""
    others: Counter[str] = field(default_factory=Counter)
    """Uploads of the other descriptor, likewise."""
    accepted: Counter[str] = field(default_factory=Counter)
    failed: dict[str, list[str]] = field(default_factory=dict)
    """Reasons, by fingerprint."""
    nicknames: dict[str, str] = field(default_factory=dict)

    def feed(self, text: str) -> DescriptorEvent | None:
        """Take note of an event; returns it if it is about this service's descriptors."""
        event = parse_event(text)
        if event is None or event.address != self.address or not event.fingerprint:
            return None
        self.nicknames[event.fingerprint] = event.nickname
        if event.action == "UPLOAD":
            counter = self.begun if event.descriptor == self.descriptor else self.others
            counter[event.fingerprint] += 1
        elif event.action == "UPLOADED":
            self.accepted[event.fingerprint] += 1
        elif event.action == "FAILED":
            self.failed.setdefault(event.fingerprint, []).append(event.reason)
        return event

    def acknowledged(self) -> set[str]:
        """HSDirs that have certainly taken the descriptor that clients fetch: more yeses than it can owe the other."""
        return {fingerprint for fingerprint in self.begun if self.accepted[fingerprint] > self.others[fingerprint]}

    def refused(self) -> dict[str, str]:
        """HSDirs that have certainly not taken it, with tor's reason."""
        return {
            fingerprint: self.failed[fingerprint][-1]
            for fingerprint in self.begun
            if len(self.failed.get(fingerprint, ())) > self.others[fingerprint]
        }

    def unanswered(self) -> set[str]:
        """HSDirs that have not answered every upload of either descriptor yet."""
        return {
            fingerprint
            for fingerprint, count in (self.begun + self.others).items()
            if self.accepted[fingerprint] + len(self.failed.get(fingerprint, ())) < count
        }

    def settled(self) -> bool:
        """Whether the descriptor that clients fetch has been uploaded and every answer is there."""
        return bool(self.begun) and not self.unanswered()
