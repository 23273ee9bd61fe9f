"""Watching one instance through its control port: its descriptor, and whether it can be reached at all.

Without uploads of its own (``PublishHidServDescriptors 0``) a tor makes its descriptor all the same and tells of no
change in it, so it is asked again and again. Its death is known at once: the connection closes.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from testbed.errors import TestbedError
from testbed.tor.control import Control, ControlError
from testbed.tor.distribute.document import Content, read_descriptor
from testbed.tor.distribute.endpoint import try_connect
from testbed.tor.distribute.handover import publish_alone, publish_no_more, publishes
from testbed.tor.distribute.journal import Journal
from testbed.tor.distribute.settings import Member
from testbed.tor.protocol.descriptor import parse_outer

PATIENCE = 5.0
"""Seconds after which an instance counts as ready with the circuits that its current descriptor needs.

Before that it must have as many more, for its next descriptor: which one a circuit is for, tor does not say.
"""
SILENT = 60.0
"""Seconds without a descriptor after which that is told."""
_RETRY = (0.2, 0.5, 1.0, 2.0)
_ESTABLISHED = re.compile(r"^\d+ \S+ (\S+).*PURPOSE=HS_SERVICE_INTRO HS_STATE=HSSI_ESTABLISHED.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class View:
    """What is known of an instance."""

    content: Content | None = None
    """Its descriptor, while clients can reach it by that."""
    why: str = "not asked yet"
    """Why there is none."""


class InstanceWatch(threading.Thread):
    """Keeps the ``view`` of one instance up to date. ``changed`` is called after each change, in this thread."""

    def __init__(
        self,
        member: Member,
        address: str,
        identity: bytes,
        *,
        poll: float,
        cookie: str,
        journal: Journal,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(name=f"watch-{member.name}", daemon=True)
        self.member = member
        self.view = View()
        self._label = address.removesuffix(".onion")
        self._identity = identity
        self._poll, self._cookie = poll, cookie
        self._journal, self._changed = journal, changed
        self._over = threading.Event()
        self._alone: bool | None = None
        """Whether the instance shall publish by itself; None: as it was configured."""
        self._seen_to: bool | None = None
        """What has been seen to on this connection."""
        self._outer: tuple[bytes, int] | None = None
        self._begun = time.monotonic()
        self._told = False

    def stop(self) -> None:
        """End the thread soon."""
        self._over.set()

    def let_publish(self, alone: bool) -> None:
        """Have the instance publish by itself from now on, or no more."""
        self._alone = alone

    def run(self) -> None:
        """The thread's work."""
        lost_at: float | None = None
        while not self._over.is_set():
            control = self._connect()
            if control is None:
                continue
            if lost_at is not None:
                self._journal.event("control_gap", self.member.name, seconds=round(time.monotonic() - lost_at, 3))
            try:
                self._follow(control)
            except TestbedError as error:
                lost_at = time.monotonic()
                self._set(View(why=error.what))
            finally:
                control.close()

    def _connect(self) -> Control | None:
        for pause in (*_RETRY, _RETRY[-1]):
            try:
                control = try_connect(self.member.name, self.member.control, cookie=self._cookie, on_gap=self._gap)
            except TestbedError as error:
                self._set(View(why=error.what))
                control = None
            if control is not None:
                return control
            self._set(View(why=self.view.why if self.view.content is None else "its control port is closed"))
            if self._over.wait(pause):
                break
        return None

    def _gap(self, why: str) -> None:
        """tor was restarted so quickly that the next command found it there again."""
        self._journal.event("control_gap", self.member.name, why=why)
        self._seen_to = None
        self._set(View(why="it has just been restarted"))

    def _follow(self, control: Control) -> None:
        self._outer = self._seen_to = None
        self._begun = time.monotonic()
        control.subscribe("HS_DESC")
        if self._alone is None and not self.member.address and publishes(control):
            self._journal.event("publishes_itself", self.member.name, message="set PublishHidServDescriptors 0")
        while not self._over.is_set():
            self._see_to_publishing(control)
            self._look(control)
            ready = self.view.content is not None
            if control.next_event(self._poll if ready else min(self._poll, 0.2)) is not None:
                control.drain()

    def _see_to_publishing(self, control: Control) -> None:
        alone = self._alone
        if alone == self._seen_to:
            return
        if alone:
            publish_alone(control)
        else:
            publish_no_more(control)
        self._journal.event("publishes_alone" if alone else "publishes_no_more", self.member.name)
        self._seen_to = alone

    def _look(self, control: Control) -> None:
        try:
            text = control.getinfo(f"hs/service/desc/id/{self._label}")
        except ControlError as error:
            if control.fileno() < 0:
                raise
            self._tell_silence(error.what)
            self._set(View(why="it has no descriptor yet"))
            return
        try:
            outer = parse_outer(text.replace("\r\n", "\n"))
            known = self.view.content
            if known is None or (outer.signing_key, outer.revision) != self._outer:
                known = read_descriptor(text, self._identity)
                self._outer = outer.signing_key, outer.revision
        except ValueError as error:
            self._set(View(why=str(error)))
            return
        self._set(self._judge(known, control.getinfo("circuit-status")))

    def _judge(self, content: Content, circuits: str) -> View:
        """Whether clients can reach it: all introduction circuits are there, or, once they were, one still is."""
        counts = established(circuits, self._label)
        points = [point.relay for point in content.points]
        reached = sum(relay in counts for relay in points)
        before = self.view.content
        if before is not None and before.keys == content.keys:
            return View(content) if reached else View(why="none of its introduction circuits is left")
        spare = counts.total() >= 2 * len(points) or time.monotonic() - self._begun > PATIENCE
        if points and reached == len(points) and spare:
            return View(content)
        if before is not None and reached:
            return self.view  # on the way from one descriptor to the next
        return View(why=f"{reached} of {len(points)} introduction circuits are established")

    def _tell_silence(self, said: str) -> None:
        if not self._told and time.monotonic() - self._begun > SILENT:
            self._told = True
            self._journal.event("no_descriptor", self.member.name, address=f"{self._label}.onion", said=said)

    def _set(self, view: View) -> None:
        if view.content is not None:
            self._journal.owns(self.member.name, view.content.keys)
        if view != self.view:
            told = (view.content is None) != (self.view.content is None) or view.content is not None
            self.view = view
            if told:
                self._changed()


def established(circuits: str, label: str) -> Counter[str]:
    """Introduction circuits that are established, by fingerprint of the introduction point (control-spec 3.9)."""
    found: Counter[str] = Counter()
    for line in _ESTABLISHED.finditer(circuits):
        query = re.search(r"REND_QUERY=(\S+)", line.group(0))
        if query is None or query.group(1) == label:
            found[line.group(1).split(",")[-1].lstrip("$")[:40]] += 1
    return found
