"""What clients themselves log about introductions: why a request took as long as it did.

tor says in its log at level info, domain *rend*, what becomes of each introduction. Of interest after an instance died:
an introduction point that has noticed refuses at once (NACK), and the client goes on to the next. One that has not
noticed acknowledges, and the client waits for the dead instance until it gives that circuit up, some 31 s later. When
no introduction point is left it fetches a descriptor again, which may be the same dead instance's: the request fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from testbed.tor.control import Control
from testbed.tor.network import TorNetwork

LOG = "introductions.log"
"""In the client's folder."""
FEWEST_SECONDS = 3.0
"""A wait for an acknowledged introduction counts as a stall from so long on; a living instance needs a second."""
_LOOK = 1.0
"""Seconds between two looks of tor at a waiting request, each of which it logs."""
_QUARTER = 900
_LINE = re.compile(r"^\w{3} +\d+ (\d\d):(\d\d):(\d\d\.\d{3}) \[\w+\] (.*)$")
_PATTERNS = {
    "nack": re.compile(r"Received INTRODUCE_ACK nack by \$(?P<relay>[0-9A-F]{40})"),
    "waiting": re.compile(r"pending-join circ (?P<circuit>\d+) .*already here, with intro ack\. Stalling"),
    "joined": re.compile(r"Got RENDEZVOUS2 cell from hidden service on circuit (?P<circuit>\d+)"),
    "fetch": re.compile(r"Descriptor fetch request for service .* to directory \$(?P<relay>[0-9A-F]{40})"),
    "descriptor": re.compile(r"Descriptor has arrived\. Launching circuits"),
    "useless": re.compile(r"Hidden service descriptor is unusable"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that a client logged."""

    t: float
    """On the clock of the anchor."""
    what: str
    """``nack``: an introduction point refused; ``waiting``: one has acknowledged, and the instance has not come yet
    (once a second); ``joined``: it has come to the rendezvous; ``fetch``: a descriptor is asked for; ``descriptor``: it
    came; ``useless``: it came, and all its introduction points have failed already. ``stalled``: see ``condensed``."""
    relay: str = ""
    """Fingerprint of the introduction point or HSDir, where the log names it."""
    circuit: str = ""
    """That to the rendezvous point, likewise: it tells apart requests that are under way together."""
    seconds: float = 0.0
    """Of a stall: its length."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One moment on two clocks."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> Anchor:
        """This moment."""
        return cls(time.monotonic(), time.time())


def parse(lines: Iterable[str], anchor: Anchor) -> Iterator[Mark]:
    """Marks in the order of the log; lines about other things are passed over.

    The log has the local time without date and zone. Zones differ by quarters of an hour, so the moment is taken to be
    the one within seven minutes of ``anchor``, which is enough for a step of an experiment.
    """
    for line in lines:
        found = _LINE.match(line)
        if not found:
            continue
        hours, minutes, seconds, text = found.groups()
        for what, pattern in _PATTERNS.items():
            if mark := pattern.search(text):
                of_day = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
                offset = (of_day - anchor.wall + _QUARTER / 2) % _QUARTER - _QUARTER / 2
                named = mark.groupdict()
                yield Mark(anchor.monotonic + offset, what, named.get("relay") or "", named.get("circuit") or "")
                break


def condensed(marks: Iterable[Mark]) -> list[Mark]:
    """Marks in the order of time, where a request waited for ``FEWEST_SECONDS`` or more after an acknowledgement as one
    ``stalled`` with its length (to within a second) instead of each ``waiting``."""
    waits: dict[str, list[float]] = {}
    found: list[Mark] = []
    for mark in marks:
        if mark.what == "waiting":
            waits.setdefault(mark.circuit, []).append(mark.t)
        else:
            found.append(mark)
    for circuit, moments in waits.items():
        if (seconds := moments[-1] - moments[0] + _LOOK) >= FEWEST_SECONDS:
            found.append(Mark(moments[0], "stalled", circuit=circuit, seconds=seconds))
    return sorted(found, key=lambda mark: mark.t)


class IntroductionLogs:
    """A context in which clients log their introductions; ``marks`` reads what they have logged since its beginning."""

    def __init__(self, network: TorNetwork, clients: Iterable[str]) -> None:
        self._network = network
        self._clients = list(clients)
        self._begun: dict[str, int] = {}

    def __enter__(self) -> IntroductionLogs:
        self._anchor = Anchor.now()
        for name in self._clients:
            path = self._path(name)
            self._begun[name] = path.stat().st_size if path.exists() else 0
            self._configure(name, f'Log="[rend]info file {path}"')
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._clients:
            self._configure(name)

    def marks(self, client: str) -> list[Mark]:
        """What a client has logged, condensed; times are ``time.monotonic()`` values."""
        try:
            with self._path(client).open(errors="replace") as file:
                file.seek(self._begun[client])
                return condensed(parse(file, self._anchor))
        except FileNotFoundError:
            return []

    def _path(self, client: str) -> Path:
        return self._network.nodes[client].paths.node / LOG

    def _configure(self, client: str, *further: str) -> None:
        with self._network.control(client) as control:
            _set_logs(control, ['Log="notice stdout"', *further])


def _set_logs(control: Control, logs: list[str]) -> None:
    # whole seconds, as everywhere else, do not tell a refusal from the next attempt
    control.ask(" ".join(["SETCONF", *logs, "LogTimeGranularity=1"]))
