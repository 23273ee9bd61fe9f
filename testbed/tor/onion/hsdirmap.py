"""Which descriptor each responsible HSDir holds, read from the HSDirs themselves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError, WaitTimeout
from testbed.tor.control import Control, await_any
from testbed.tor.names import JOINT
from testbed.tor.network import TorNetwork
from testbed.tor.onion.owners import whose
from testbed.tor.protocol.descriptor import parse_content_event, parse_event, parse_outer
from testbed.tor.protocol.hsdir import Router

FETCH_TIMEOUT = 30.0
"""Seconds for all answers."""
ATTEMPTS = 3
"""Times that an HSDir is asked, should a circuit to it break."""
FEWEST_ROUTERS = 5
"""In a network of so many, a relay can build the circuit of four hops by which an HSDir is asked."""


@dataclass(frozen=True, slots=True)
class HSDirEntry:
    """What one HSDir answered."""

    nickname: str
    fingerprint: str
    instance: str
    """Whose descriptor it holds; empty if it holds none, or one that nobody here has made. ``a+b`` of a mixed one."""
    revision: int | None
    """None: it holds no descriptor."""
    time: float
    """``time.monotonic()`` of the answer."""
    instances: tuple[str, ...] = ()
    """All whose introduction points are in it."""


def read_hsdirs(
    network: TorNetwork, address: str, hsdirs: Sequence[Router], owners: Mapping[bytes, str], reader: str = ""
) -> list[HSDirEntry]:
    """Ask every one of ``hsdirs`` for the descriptor of a service, by HSFETCH (control-spec 3.27).

    ``owners`` are instances by the keys of their descriptors, see ``owners.whose``. ``reader`` is the node that asks;
    otherwise see ``default_readers``. WaitTimeout names the HSDirs that did not answer.
    """
    readers = [reader] if reader else default_readers(network)
    controls = [network.control(name) for name in readers]
    try:
        for control in controls:
            control.subscribe("HS_DESC", "HS_DESC_CONTENT")
        return _collect(controls, address, hsdirs, owners)
    finally:
        for control in controls:
            control.close()


def _collect(
    controls: Sequence[Control], address: str, hsdirs: Sequence[Router], owners: Mapping[bytes, str]
) -> list[HSDirEntry]:
    by_fingerprint = {hsdir.fingerprint: hsdir for hsdir in hsdirs}
    answers: dict[str, HSDirEntry] = {}
    asked: Counter[str] = Counter()

    def ask(fingerprint: str) -> None:
        asked[fingerprint] += 1
        others = [control for control in controls if control.node != by_fingerprint[fingerprint].nickname]
        (others or controls)[0].ask(f"HSFETCH {address.removesuffix('.onion')} SERVER={fingerprint}")

    for fingerprint in by_fingerprint:
        ask(fingerprint)
    deadline = time.monotonic() + FETCH_TIMEOUT
    while missing := [hsdir.nickname for hsdir in hsdirs if hsdir.fingerprint not in answers]:
        if time.monotonic() > deadline:
            seen = f"nothing from {', '.join(missing)}"
            raise WaitTimeout("HSDirs to say what they hold", FETCH_TIMEOUT, seen, where=address)
        for control in await_any(list(controls), 0.5):
            for event in control.drain():
                entry = _entry(event, address, by_fingerprint, owners)
                if isinstance(entry, HSDirEntry):
                    answers[entry.fingerprint] = entry
                elif entry and asked[entry] < ATTEMPTS:
                    ask(entry)
                elif entry:
                    name = by_fingerprint[entry].nickname
                    raise TestbedError(f"HSDir {name} could not be asked: {event}", where=address)
    return [answers[hsdir.fingerprint] for hsdir in hsdirs]


def default_readers(network: TorNetwork) -> list[str]:
    """Two authorities or relays: what clients have cached stays as it is, and no relay can ask itself.

    A relay's circuit to an HSDir needs three others between them. Where there are not so many, the last client asks;
    it then has the descriptor that came last in its cache.
    """
    routers = network.authorities + network.relays
    return routers[:2] if len(routers) >= FEWEST_ROUTERS or not network.clients else network.clients[-1:]


def _entry(
    text: str, address: str, hsdirs: Mapping[str, Router], owners: Mapping[bytes, str]
) -> HSDirEntry | str | None:
    """What an event says: an answer, the fingerprint of an HSDir that was not reached, or nothing of interest."""
    now = time.monotonic()
    content = parse_content_event(text)
    if content is not None:
        fingerprint, descriptor = content
        if fingerprint not in hsdirs or not descriptor:
            return None
        names = whose(descriptor, address, owners)
        revision = parse_outer(descriptor).revision
        return HSDirEntry(hsdirs[fingerprint].nickname, fingerprint, JOINT.join(names), revision, now, names)
    event = parse_event(text)
    if event is None or event.action != "FAILED" or event.fingerprint not in hsdirs:
        return None
    if event.reason == "NOT_FOUND":
        return HSDirEntry(event.nickname, event.fingerprint, "", None, now)
    return event.fingerprint
