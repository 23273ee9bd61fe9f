"""Carrying out in a core what the state says of links: the supervisor's work with TAPs, apart from its watch."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from testbed.errors import ApplyError, TestbedError
from testbed.net import namespace
from testbed.net.wire import tap
from testbed.net.wire.child import Child
from testbed.net.wire.model import behaviour, seeds
from testbed.net.wire.protocol import DIRECTIONS, Kind, Message
from testbed.net.wire.settings import Settings
from testbed.net.wire.state import TapEnd, WireLink

READY_TIMEOUT = 5.0
BUSY_TIMEOUT = 1.0
T = TypeVar("T")
Descriptors = dict[TapEnd, int | ApplyError]


def open_ends(links: Iterable[WireLink]) -> Descriptors:
    """A descriptor for each end of ``links``, or why there is none."""
    found: Descriptors = {}
    deadline = time.monotonic() + BUSY_TIMEOUT
    for end, outcome in at_ends(links, lambda end: tap.open_tap(end.ifname, deadline)).items():
        if isinstance(outcome, ApplyError | int):
            found[end] = outcome
        else:
            found[end] = ApplyError(f"cannot enter {end.namespace}: {outcome.strerror}")
    return found


def at_ends(links: Iterable[WireLink], work: Callable[[TapEnd], T]) -> dict[TapEnd, T | ApplyError | OSError]:
    """What ``work`` returns or raises for each end of ``links``, called inside the end's namespace."""
    ends = sorted({end for link in links for end in (link.a, link.b)}, key=lambda end: end.namespace)
    return namespace.in_thread(lambda: _at_ends(ends, work))


def _at_ends(ends: Iterable[TapEnd], work: Callable[[TapEnd], T]) -> dict[TapEnd, T | ApplyError | OSError]:
    found: dict[TapEnd, T | ApplyError | OSError] = {}
    here = ""
    for end in ends:
        try:
            if end.namespace != here:
                namespace.enter(Path(end.namespace))
                here = end.namespace
            found[end] = work(end)
        except (ApplyError, OSError) as error:
            found[end] = error
            here = ""
    return found


def overflows(links: Iterable[WireLink]) -> dict[TapEnd, int]:
    """Frames that each end's device dropped before the core could read them; without those that are gone."""
    found = at_ends(links, lambda end: tap.dropped(end.ifname))
    return {end: count for end, count in found.items() if isinstance(count, int)}


def await_ready(links: Iterable[WireLink]) -> None:
    """Wait until the kernel has taken note that the ends of all links that are up have a carrier. ApplyError, naming
    an interface, after ``READY_TIMEOUT`` seconds."""
    deadline = time.monotonic() + READY_TIMEOUT

    def wait(end: TapEnd) -> None:
        while not tap.is_ready(end.ifname):
            if time.monotonic() > deadline:
                raise ApplyError(f"{end.ifname} in {end.namespace} has no carrier after {READY_TIMEOUT:g} s")
            time.sleep(0.001)  # the kernel tells only by netlink, and this takes less than that
        tap.settle()

    for outcome in at_ends((link for link in links if link.up), wait).values():
        if isinstance(outcome, ApplyError):
            raise outcome  # but where a namespace or device is gone by now, there is nothing to wait for


class Carried:
    """The links that one core carries, by number."""

    def __init__(self, child: Child, generation: int) -> None:
        self._child = child
        self._generation = generation
        self._taps: dict[int, tuple[int, int]] = {}
        """Descriptor numbers, in the core, of the ends of each link."""

    def __contains__(self, number: int) -> bool:
        return number in self._taps

    def add_all(self, links: dict[int, WireLink]) -> dict[int, ApplyError]:
        """Open the TAPs of ``links`` and let the core carry them. Those that could not be are returned with the
        reason; the others are carried."""
        opened = open_ends(links.values())
        failed = {}
        try:
            for number, link in links.items():
                ends = opened[link.a], opened[link.b]
                try:
                    self._add(number, link, *ends)
                except (ApplyError, OSError) as error:
                    what, remedy = (error.what, error.remedy) if isinstance(error, ApplyError) else (str(error), "")
                    failed[number] = ApplyError(what, where=f"link {link.name}", remedy=remedy)
        finally:
            for end in opened.values():
                if isinstance(end, int):
                    os.close(end)  # only the core may have it: its death must take the carrier away
        await_ready(link for number, link in links.items() if number not in failed)
        return failed

    def _add(self, number: int, link: WireLink, a: int | ApplyError, b: int | ApplyError) -> None:
        if isinstance(a, ApplyError):
            raise a
        if isinstance(b, ApplyError):
            raise b
        for fd, direction in ((a, "forward"), (b, "backward")):
            tap.set_joined(fd, not behaviour(link.settings(direction)).single)
            tap.set_carrier(fd, link.up)
        answer = self._child.request(Message(Kind.ADD, link=number), [a, b])
        self._taps[number] = answer.values[0], answer.values[1]
        for index, direction in enumerate(DIRECTIONS):
            start = seeds(link.seed, link.name, direction, self._generation)
            self._child.request(Message(Kind.SEED, link=number, argument=index, values=start))
            self._set(number, index, link.settings(direction))
        if link.up:
            self._child.request(Message(Kind.OPEN, link=number, argument=1))

    def _set(self, number: int, index: int, settings: Settings) -> None:
        wanted = behaviour(settings)
        request = Message(Kind.SET, link=number, argument=index, behaviour=wanted)
        seen = self._child.request(request).behaviour
        if seen != wanted:
            raise ApplyError(f"the wire reads {seen} after {wanted} was set")

    def change(self, number: int, direction: str, old: Settings, new: Settings) -> None:
        """Replace the settings of one direction. No frame is lost by it."""
        index = DIRECTIONS.index(direction)
        single = behaviour(new).single
        switch = single != behaviour(old).single
        if switch and single:
            self._set_joined(number, index, False)  # before, so that no joined frame is lost as one
        self._set(number, index, new)
        if switch and not single:
            self._set_joined(number, index, True)

    def _set_joined(self, number: int, index: int, joined: bool) -> None:
        fd = self._borrow(number, index)
        try:
            tap.set_joined(fd, joined)
        finally:
            os.close(fd)

    def set_up(self, number: int, link: WireLink, up: bool) -> None:
        """Plug or pull the cable at both ends. Frames in flight are discarded when it is pulled."""
        if not up:
            self._child.request(Message(Kind.OPEN, link=number, argument=0))
        for index in range(2):
            fd = self._borrow(number, index)
            try:
                tap.set_carrier(fd, up)
            finally:
                os.close(fd)
        if up:
            self._child.request(Message(Kind.OPEN, link=number, argument=1))
            await_ready([replace(link, up=up)])

    def _borrow(self, number: int, index: int) -> int:
        """A copy of the core's descriptor, for what may wait for locks of the kernel: the core must not wait."""
        try:
            return tap.borrow(self._child.pidfd, self._taps[number][index])
        except OSError as error:
            if error.errno == errno.ESRCH:
                self._child.request(Message(Kind.PING))  # which says how it died
            raise TestbedError(f"cannot reach a TAP of the wire: {error.strerror}") from error

    def remove(self, number: int) -> None:
        """Carry a link no more; its TAPs stay, without carrier."""
        del self._taps[number]
        self._child.request(Message(Kind.REMOVE, link=number))
