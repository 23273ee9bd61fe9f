"""Which descriptor each responsible HSDir holds, read from the HSDirs themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError, WaitTimeout
from testbed.tor.control import await_any
from testbed.tor.descriptor import parse_content_event, parse_event, parse_outer
from testbed.tor.hsdir import Router
from testbed.tor.network import TorNetwork

FETCH_TIMEOUT = 30.0
"""Seconds."""
FEWEST_ROUTERS = 5
"""In a network of so many, a relay can build the circuit of four hops by which an HSDir is asked."""


@dataclass(frozen=True, slots=True)
class HSDirEntry:
    """What one HSDir answered."""

    nickname: str
    fingerprint: str
    instance: str
    """Whose descriptor it holds; empty if it holds none, or one that nobody here has made."""
    revision: int | None
    """None: it holds no descriptor."""
    time: float
    """``time.monotonic()`` of the answer."""


def read_hsdirs(
    network: TorNetwork, address: str, hsdirs: Sequence[Router], owners: Mapping[bytes, str], reader: str = ""
) -> list[HSDirEntry]:
    """Ask every one of ``hsdirs`` for the descriptor of a service, by HSFETCH (control-spec 3.27).

    ``owners`` are instances by the signing keys of their descriptors. ``reader`` is the node that asks; otherwise see
    ``default_readers``. WaitTimeout names the HSDirs that did not answer.
    """
    label = address.removesuffix(".onion")
    readers = [reader] if reader else default_readers(network)
    answers: dict[str, HSDirEntry] = {}
    controls = [network.control(name) for name in readers]
    try:
        for control, name in zip(controls, readers, strict=True):
            control.subscribe("HS_DESC", "HS_DESC_CONTENT")
            asked = [hsdir for hsdir in hsdirs if _reader_of(hsdir, readers) == name]
            if asked:
                control.ask(" ".join(["HSFETCH", label, *(f"SERVER={hsdir.fingerprint}" for hsdir in asked)]))
        deadline = time.monotonic() + FETCH_TIMEOUT
        by_fingerprint = {hsdir.fingerprint: hsdir for hsdir in hsdirs}
        while len(answers) < len(by_fingerprint):
            if time.monotonic() > deadline:
                silent = ", ".join(h.nickname for h in hsdirs if h.fingerprint not in answers)
                raise WaitTimeout("HSDirs to answer", FETCH_TIMEOUT, f"nothing from {silent}", where=address)
            for control in await_any(controls, 0.5):
                for event in control.drain():
                    entry = _entry(event, by_fingerprint, owners)
                    if entry is not None:
                        answers[entry.fingerprint] = entry
    finally:
        for control in controls:
            control.close()
    return [answers[hsdir.fingerprint] for hsdir in hsdirs]


def default_readers(network: TorNetwork) -> list[str]:
    """Two authorities or relays: what clients have cached stays as it is, and no relay can ask itself.

    A relay's circuit to an HSDir needs three others between them. Where there are not so many, the last client asks;
    it then has the descriptor that came last in its cache.
    """
    routers = network.authorities + network.relays
    return routers[:2] if len(routers) >= FEWEST_ROUTERS or not network.clients else network.clients[-1:]


def _reader_of(hsdir: Router, readers: Sequence[str]) -> str:
    return next((name for name in readers if name != hsdir.nickname), readers[0])


def _entry(text: str, hsdirs: Mapping[str, Router], owners: Mapping[bytes, str]) -> HSDirEntry | None:
    now = time.monotonic()
    content = parse_content_event(text)
    if content is not None:
        fingerprint, descriptor = content
        if fingerprint in hsdirs and descriptor:
            outer = parse_outer(descriptor)
            owner = owners.get(outer.signing_key, "")
            return HSDirEntry(hsdirs[fingerprint].nickname, fingerprint, owner, outer.revision, now)
        return None
    event = parse_event(text)
    if event is None or event.action != "FAILED" or event.fingerprint not in hsdirs:
        return None
    if event.reason != "NOT_FOUND":
        raise TestbedError(f"HSDir {event.nickname} could not be asked: {event.reason}", where=event.address)
    return HSDirEntry(event.nickname, event.fingerprint, "", None, now)
