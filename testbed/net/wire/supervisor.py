"""Watches over a lab's core and answers on the lab's wire socket; forked by the guard."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from testbed.errors import TestbedError
from testbed.net.wire import charge, state
from testbed.net.wire.charge import NONE, Charge
from testbed.net.wire.child import PRIORITY
from testbed.net.wire.keeper import HEARTBEAT, Keeper
from testbed.net.wire.links import Carried
from testbed.net.wire.protocol import DIRECTIONS
from testbed.net.wire.realtime import in_real_time
from testbed.net.wire.service import Service
from testbed.net.wire.state import WireLink


class Supervisor:
    """What clients can ask. Requests, heartbeats and restarts come one after another, in one thread."""

    def __init__(self, keeper: Keeper, guard: GuardWatch) -> None:
        self._keeper = keeper
        self._guard = guard

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what a client asks; TestbedError says what was wrong with it."""
        actions: dict[str, Callable[..., Any]] = {
            "status": self.status,
            "links": self.links,
            "change": self.change,
            "set_up": self.set_up,
            "add": self.add,
            "remove": self.remove,
            "statistics": self.statistics,
        }
        words = dict(request)
        action = actions.get(str(words.pop("do", "")))
        if action is None:
            raise TestbedError(f"unknown request {request.get('do')!r}", remedy=f"one of {', '.join(actions)}")
        try:
            return action(**words)
        except TypeError as error:
            raise TestbedError(f"wrong arguments for {request['do']}: {error}") from error

    def _link(self, name: str) -> WireLink:
        links = self._keeper.state.links
        if not isinstance(name, str) or name not in links:
            names = ", ".join(list(links)[:10]) or "none"
            raise TestbedError(f"the wire carries no link {name!r}", remedy=f"its links: {names}")
        return links[name]

    def status(self) -> dict[str, Any]:
        """The core and how it is."""
        keeper = self._keeper
        return {
            "guard": self._guard.pid,
            "supervisor": os.getpid(),
            "pid": keeper.child.pid if keeper.child else None,
            "core": keeper.core,
            "real_time": bool(keeper.child and keeper.child.real_time),
            "starts": keeper.state.generation,
            "closed": keeper.problems,
        }

    def links(self) -> dict[str, Any]:
        """All links as they are."""
        return {name: _plain(link) for name, link in self._keeper.state.links.items()}

    def change(self, link: str, forward: object = None, backward: object = None) -> dict[str, Any]:
        """Change some properties of one direction or both."""
        old = new = self._link(link)
        for direction, change in (("forward", forward), ("backward", backward)):
            if change is None:
                continue
            if not isinstance(change, dict):
                raise TestbedError(f"{direction} must be an object of properties")
            new = new.with_settings(direction, old.settings(direction).changed(change))

        def work(carried: Carried, number: int) -> None:
            for direction in DIRECTIONS:
                if new.settings(direction) != old.settings(direction):
                    carried.change(number, direction, old.settings(direction), new.settings(direction))

        self._keeper.update(new, work)
        return _plain(new)

    def set_up(self, link: str, up: bool) -> dict[str, Any]:
        """Plug or pull the cable."""
        old = self._link(link)
        if not isinstance(up, bool):
            raise TestbedError("up must be true or false")
        new = replace(old, up=up)
        self._keeper.update(new, lambda carried, number: carried.set_up(number, old, up))
        return _plain(new)

    def add(self, link: object) -> dict[str, Any]:
        """Carry another link, or one of the same name anew."""
        if not isinstance(link, dict):
            raise TestbedError("link must be an object")
        try:
            new = state.link_of(link)
        except (TypeError, KeyError, ValueError) as error:
            raise TestbedError(f"this is no link: {error}") from error
        if new.name in self._keeper.state.links:
            self._keeper.remove(new.name)
        self._keeper.add(new)
        return _plain(new)

    def remove(self, link: str) -> None:
        """Carry a link no more."""
        self._keeper.remove(self._link(link).name)

    def statistics(self, link: str | None = None) -> dict[str, Any]:
        """Counters of all links, or of one."""
        names = list(self._keeper.state.links) if link is None else [self._link(link).name]
        return self._keeper.statistics(names)


def _plain(link: WireLink) -> dict[str, Any]:
    return {"up": link.up, **{direction: link.settings(direction).plain() for direction in DIRECTIONS}}


def serve(keeper: Keeper, selector: selectors.BaseSelector) -> None:
    """Answer clients and watch the core until the lab's folder is gone. Each key's ``data`` is what to call."""
    due = time.monotonic() + HEARTBEAT
    while keeper.folder.exists():
        for key, mask in selector.select(max(0.0, due - time.monotonic())):
            key.data(mask)
        if keeper.unsaved:
            keeper.save()
        if time.monotonic() >= due:
            keeper.heartbeat()
            due = time.monotonic() + HEARTBEAT


class GuardWatch:
    """Sees to it that there is a guard."""

    def __init__(self, it: Charge, pidfd: int, keeper: Keeper, selector: selectors.BaseSelector) -> None:
        self.pid = os.getppid()
        self._it = it
        self._keeper = keeper
        self._selector = selector
        self._process: subprocess.Popen[bytes] | None = None
        self._watch(pidfd)

    def _watch(self, pidfd: int) -> None:
        self._pidfd = pidfd
        self._selector.register(pidfd, selectors.EVENT_READ, lambda _: self._died())

    def _died(self) -> None:
        self._selector.unregister(self._pidfd)
        os.close(self._pidfd)
        if self._process:
            self._process.wait()
        if not self._it.folder.exists():
            return  # the lab is being taken down
        self._keeper.event("wire-guard-died", pid=self.pid)
        try:
            self._process = charge.replace_guard(self._it)
            self.pid = self._process.pid
            self._watch(os.pidfd_open(self.pid))
        except OSError as error:
            self._keeper.event("wire-guard-failed", reason=str(error))
            return
        self._keeper.event("wire-guard-restarted", pid=self.pid)


def run(it: Charge, guard: int) -> None:
    """Start the core, tell whoever waits for it, serve. ``guard``: a pidfd of the guard.

    At the very first start a link that cannot be carried is an error; later it is closed, and the others are carried.
    """
    in_real_time(PRIORITY + 1)  # idle nearly always, and able to end a core that takes a whole processor
    selector = selectors.DefaultSelector()
    try:
        keeper = Keeper(it, selector)
        if it.died == NONE:
            keeper.first_launch()
        else:
            keeper.launch_again(it.died)
        watch = GuardWatch(it, guard, keeper, selector)
        Service(it.folder / state.SOCKET, Supervisor(keeper, watch).answer, selector)
        word: dict[str, Any] = {"pid": os.getpid()}
    except (TestbedError, OSError) as error:
        word = {"error": str(error)}
    if it.ready != NONE:
        os.write(it.ready, json.dumps(word).encode() + b"\n")
        os.close(it.ready)
    if "error" in word:
        return
    try:
        serve(keeper, selector)
    except BaseException:
        keeper.event("wire-supervisor-failed", reason=traceback.format_exc(limit=-2))
        raise
