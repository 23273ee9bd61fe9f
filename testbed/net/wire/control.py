"""Talks to a lab's wire: read, change, cut and count links from any process that may open the lab's wire socket."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from testbed.errors import TestbedError, WaitTimeout
from testbed.net.wire.protocol import Counters, quantile_us
from testbed.net.wire.service import address_of
from testbed.net.wire.settings import Settings
from testbed.net.wire.state import SOCKET, WireLink

TIMEOUT = 10.0
"""Seconds. An answer takes under a millisecond, but a core that hangs is waited for and replaced first."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the wire of a lab is."""

    guard: int
    """Process id, as the next two."""
    supervisor: int
    pid: int | None
    """The core's; None while there is none."""
    core: str
    """``c`` or ``python``."""
    real_time: bool
    """Whether it runs before all other programs. If not, a busy machine makes links slower than they claim."""
    starts: int
    """How often a core has been started; more than 1: it has died or hung."""
    closed: dict[str, str]
    """Links that are not carried, and why."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link as it is in force."""

    up: bool
    forward: Settings
    backward: Settings


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one direction has carried."""

    counters: Counters
    lateness: list[int]
    """See ``protocol.LATENESS_BUCKETS``."""
    overflowed: int
    """Frames that the sending interface dropped before the core could read them: its queue was full, or nothing
    carried the link."""

    def lateness_us(self, share: float) -> int:
        """By how much a frame left too late at most in ``share`` of all cases, to the next power of two."""
        return quantile_us(self.lateness, share)


class Wire:
    """A connection to the wire of the lab whose state is in ``folder``. Use it as a context manager."""

    def __init__(self, folder: Path, *, timeout: float = TIMEOUT) -> None:
        """TestbedError if nothing listens there."""
        self._where = f"wire of {folder.name}"
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(timeout)
        self._received = b""
        try:
            with address_of(folder / SOCKET) as address:
                self._socket.connect(address)
        except OSError as error:
            self._socket.close()
            raise TestbedError(f"no answer: {error.strerror}", where=self._where, remedy=_remedy(error)) from error

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def status(self) -> Status:
        """How the wire is."""
        return Status(**self._ask("status"))

    def links(self) -> dict[str, LinkState]:
        """All links by name (``Link.name``), as in force."""
        return {name: _link_state(data) for name, data in self._ask("links").items()}

    def change(
        self,
        link: str,
        *,
        forward: Mapping[str, Any] | None = None,
        backward: Mapping[str, Any] | None = None,
    ) -> LinkState:
        """Change some properties of a link, named as in ``Settings``; all others stay. No frame is lost by it.

        Returns what is in force then. TestbedError for unknown links and properties and impossible values; nothing is
        changed then. Raises also WaitTimeout.
        """
        words = {"link": link, "forward": _optional(forward), "backward": _optional(backward)}
        return _link_state(self._ask("change", **words))

    def set_up(self, link: str, up: bool) -> LinkState:
        """Pull or plug the cable: without it both interfaces have no carrier, and frames in flight are gone."""
        return _link_state(self._ask("set_up", link=link, up=up))

    def add(self, link: WireLink) -> LinkState:
        """Carry a link whose TAPs exist; if there is one of that name, it is replaced. ApplyError-like TestbedError
        if the TAPs cannot be opened."""
        return _link_state(self._ask("add", link=asdict(link)))

    def remove(self, link: str) -> None:
        """Carry a link no more. Its TAPs stay, without carrier, until somebody deletes them."""
        self._ask("remove", link=link)

    def statistics(self, link: str | None = None) -> dict[str, dict[str, Traffic]]:
        """By link and direction (``forward``, ``backward``), of all links or one."""
        answer = self._ask("statistics", **({} if link is None else {"link": link}))
        return {name: {word: _traffic(data) for word, data in both.items()} for name, both in answer.items()}

    def _ask(self, what: str, **words: Any) -> Any:
        line = json.dumps({"do": what, **words}).encode() + b"\n"
        start = time.monotonic()
        try:
            self._socket.sendall(line)
            answer = json.loads(self._line(start + self._timeout))
        except TimeoutError as error:
            self.close()  # a late answer must not be taken for that of the next request
            raise WaitTimeout(
                f"the answer to {what!r}", self._timeout, "nothing", where=self._where, remedy="is it stopped?"
            ) from error
        except (OSError, EOFError) as error:
            raise TestbedError(f"connection lost: {error}", where=self._where) from error
        if "error" in answer:
            raise TestbedError(answer["error"], where=self._where, remedy=answer["remedy"])
        return answer["ok"]

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError("the other side closed it")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line


def _optional(change: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if change is None else dict(change)


def _link_state(data: dict[str, Any]) -> LinkState:
    return LinkState(data["up"], Settings(**data["forward"]), Settings(**data["backward"]))


def _traffic(data: dict[str, Any]) -> Traffic:
    return Traffic(Counters(**data["counters"]), data["lateness"], data["overflowed"])


def _remedy(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "run as root"
    return "the lab has no wire, or it was killed: then its delayed links are closed until the next testbed command"
