"""Starting the instances of an onion service, and waiting until what they publish has been answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from testbed.errors import WaitTimeout
from testbed.lab.lab import Lab
from testbed.progress import Progress
from testbed.tor.control import Control, await_any
from testbed.tor.node import TorNode, check_alive, rewrite, start, stuck
from testbed.tor.onion.publication import Publication
from testbed.tor.protocol.hsdir import Router

LIMIT = 120.0
"""Seconds from an instance's start until its uploads have been answered; 3 to 5 is usual."""
RELEASE_AT = 0.2
"""Fraction of the second of wall clock at which held instances get their network.

tor looks after its services once a second, counted from that moment, and a revision counter counts whole seconds: so
uploads begin well inside one and the same second, and no instance is preferred by a counter that is one higher.
"""
_TICK = 0.05


@dataclass(frozen=True, slots=True)
class Turn:
    """When an instance is started."""

    node: TorNode
    gap: float = 0.0
    """Seconds after the one before it; 0: together with it."""


def one_by_one(nodes: Sequence[TorNode], stagger: float) -> list[Turn]:
    """Each instance ``stagger`` seconds after the one before."""
    return [Turn(node, stagger if place else 0.0) for place, node in enumerate(nodes)]


def one_late(nodes: Sequence[TorNode], stagger: float, which: int, late_by: float) -> list[Turn]:
    """Likewise, but instance ``which`` (from 1) ``late_by`` seconds after the last of the others."""
    others = [node for place, node in enumerate(nodes, 1) if place != which]
    return [*one_by_one(others, stagger), Turn(nodes[which - 1], late_by)]


class Publisher:
    """One start of some instances of one service: ``begin``, then ``finish``, or both by ``run``."""

    def __init__(
        self,
        lab: Lab,
        service: str,
        turns: Sequence[Turn],
        publications: Sequence[Publication],
        hsdirs: Sequence[Router],
        progress: Progress,
        *,
        way: str = "naive",
    ) -> None:
        """Nodes of ``turns`` are prepared and not started; if ``way`` is ``simultaneous``, without network."""
        self._lab, self._service, self._progress, self._way = lab, service, progress, way
        self._turns = list(turns)
        self._nodes = [turn.node for turn in turns]
        self._hsdirs = {hsdir.fingerprint for hsdir in hsdirs}
        self._publications = {publication.instance: publication for publication in publications}
        self._answered: dict[str, float] = {}
        self._controls: dict[str, Control] = {}
        self._last = 0.0

    def run(self) -> list[Publication]:
        """Start all instances; returns when all uploads have been answered."""
        self.begin()
        return self.finish()

    def begin(self) -> None:
        """Start the first instance and those together with it, and listen to what they tell of uploads."""
        together = 1
        while together < len(self._turns) and not self._turns[together].gap:
            together += 1
        first, self._turns = self._turns[:together], self._turns[together:]
        self._start([turn.node for turn in first])
        self._pump(lambda: len(self._controls) == together)

    def finish(self) -> list[Publication]:
        """Start the others in turn, or release all together, and wait until all uploads have been answered."""
        if self._way == "simultaneous":
            self._release()
        for turn in self._turns:
            due = self._last + turn.gap
            self._pump(partial(_is_past, due), patience=max(0.0, due - time.monotonic()))
            self._start([turn.node])
        self._pump(lambda: len(self._answered) == len(self._nodes))
        return list(self._publications.values())

    def _start(self, nodes: Sequence[TorNode]) -> None:
        self._last = time.monotonic()
        start(self._lab, nodes)
        if self._way != "simultaneous":
            self._tell_started(nodes)

    def _release(self) -> None:
        """Give all instances their network at one moment."""
        with ThreadPoolExecutor(len(self._nodes)) as pool:
            time.sleep((RELEASE_AT - time.time()) % 1)  # not a wait for something: this moment is what is wanted
            list(pool.map(lambda control: control.setconf(DisableNetwork=0), self._controls.values()))
        for node in self._nodes:
            rewrite(node, "DisableNetwork", "0")  # should it be started again
        self._tell_started(self._nodes)

    def _tell_started(self, nodes: Sequence[TorNode]) -> None:
        for node in nodes:
            self._lab.event("onion_started", node.name, service=self._service, publish=self._way)

    def acknowledged(self) -> set[str]:
        """HSDirs that have certainly taken a descriptor of one of the instances."""
        return set().union(*(publication.acknowledged() for publication in self._publications.values()))

    def _pump(self, done: Callable[[], bool], patience: float = 0.0) -> None:
        """Take in events until ``done``; WaitTimeout ``patience`` seconds later than usual."""
        begun = time.monotonic()
        while True:
            self._connect()
            self._show()
            if done():
                return
            check_alive(self._nodes)
            if time.monotonic() - begun > LIMIT + patience:
                raise self._timeout()
            if not self._controls:
                time.sleep(_TICK)
            for control in await_any(list(self._controls.values()), _TICK):
                self._take(control)

    def _connect(self) -> None:
        for node in self._nodes:
            if node.process is not None and node.name not in self._controls and node.connected():
                self._controls[node.name] = node.require()
                node.require().subscribe("HS_DESC")

    def _take(self, control: Control) -> None:
        publication = self._publications[control.node]
        for text in control.drain():
            publication.feed(text)
        if publication.settled() and control.node not in self._answered:
            self._answered[control.node] = time.monotonic()
            self._lab.event(
                "onion_published",
                control.node,
                service=self._service,
                acknowledged=sorted(publication.nicknames[item] for item in publication.acknowledged()),
                refused={publication.nicknames[item]: why for item, why in publication.refused().items()},
            )

    def _show(self) -> None:
        held = len(self.acknowledged() & self._hsdirs)
        note = f"{held} of {len(self._hsdirs)} HSDirs hold a descriptor"
        self._progress.update(f"{self._service} published", len(self._answered), len(self._nodes), note)

    def _timeout(self) -> WaitTimeout:
        late = [node for node in self._nodes if node.name not in self._answered]
        seen = "; ".join(
            f"{node.name}: {sum(item.begun.values())} uploads begun, {len(item.acknowledged())} acknowledged, "
            f"{len(item.refused())} refused"
            for node in late
            for item in [self._publications[node.name]]
        )
        return stuck(f"the descriptors of {self._service} to be answered by the HSDirs", LIMIT, late, seen)


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment
