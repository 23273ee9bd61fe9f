"""Detectors: they look at the server in service from outside, miss some of what they see, and are late.

What they report goes to the server's agent, and from there into the pool's live detection sequence.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.pool.attack.account import read_log
from testbed.pool.attack.model import chance
from testbed.pool.lab.fileserver import LOG
from testbed.pool.server.maker import PRISTINE

if TYPE_CHECKING:
    from testbed.pool.lab.pools import Pool

SIGNATURES = (re.compile(r"\.\./"), re.compile(r"/cgi-bin/"), re.compile(r"(?i)union\s+select"))
"""What requests of intruders look like."""


class Detector(ABC):
    """Looks every ``period_s``; notices what is wrong with ``probability`` at each look; reports ``delay_s`` later.

    Times are seconds of the pool's time. What was reported once is not reported again before the server changes.
    """

    name: str

    def __init__(self, pool: Pool, *, period_s: float, probability: float, delay_s: float, seed: int) -> None:
        self.pool = pool
        self._period, self._probability, self._delay, self._seed = period_s, probability, delay_s, seed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.name}-{pool.name}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    @abstractmethod
    def wrong(self, server: str, since: float) -> bool:
        """Whether something is wrong with this server, which serves since that moment (monotonic seconds)."""

    def _run(self) -> None:
        count, reported, known = 0, "", ("", 0.0)
        period = self._period / self.pool.speed
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due = max(due + period, time.monotonic())
            try:
                server = self.pool.serving()
            except TestbedError:
                continue
            if server is None:
                continue
            if server != known[0]:
                known, reported = (server, time.monotonic() - period), ""
            if reported == server or not self.wrong(server, known[1]):
                continue
            count += 1
            if chance(self._seed, f"{self.pool.name}/{self.name}", count, self._probability):
                reported = server
                if not self._stopping.wait(self._delay / self.pool.speed):
                    self._report(server)

    def _report(self, server: str) -> None:
        with contextlib.suppress(TestbedError):  # its agent is dead; so nobody hears of it
            self.pool.attacked(server, self.name)


class Integrity(Detector):
    """The files of the page are what they should be (SHA-256), and there are no others."""

    name = "integrity"

    def wrong(self, server: str, since: float) -> bool:
        """See ``Detector``."""
        folder = self.pool.lab.node_folder(server) / "www"
        return _hashes(folder) != _hashes(self.pool.world.folder / PRISTINE / server / "www")


class Patterns(Detector):
    """No request in the server's log looks like an intruder's."""

    name = "patterns"

    def wrong(self, server: str, since: float) -> bool:
        """See ``Detector``."""
        entries = read_log(self.pool.lab.node_folder(server) / LOG)
        recent = (entry["path"] for entry in reversed(entries) if entry["t"] >= since)
        return any(signature.search(path) for path in recent for signature in SIGNATURES)


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_file():
                with path.open("rb") as file:
                    found[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue  # it goes just now, as the server is made anew
    return found
