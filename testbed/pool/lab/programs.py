"""The pool's own programs in a lab, outside of its servers: started, killed, and what is left of those that ended."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.lab.state import state_root
from testbed.plan.types import Service
from testbed.pool.daemon.agent import PREPARED
from testbed.pool.lab.layout import STORE_PORT

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.pool.daemon.world import World

AGENT, STORE, CONTROL, CONTROLLER = "agent", "store", "dispatcher", "controller"
"""Names of the programs in their nodes."""
GONE = 10.0
"""Seconds for a program to end after SIGKILL."""


class Programs:
    """Those of one pool."""

    def __init__(self, world: World) -> None:
        self._world, self._lab = world, world.lab

    @property
    def all(self) -> Iterator[tuple[str, str]]:
        """Node and name of each that the pool has."""
        layout = self._world.layout
        yield layout.store, STORE
        yield layout.dispatcher, CONTROL
        for server in layout.servers:
            yield layout.agent(server), AGENT
        if self._world.spec.scheduler == "central":
            yield layout.controller, CONTROLLER

    def prepared(self, server: str) -> Path:
        """The mark that its agent leaves once the server has been made for the first time."""
        return self._lab.node_folder(self._world.layout.agent(server)) / PREPARED

    def start_agent(self, server: str) -> None:
        """The agent of one server."""
        self.prepared(server).unlink(missing_ok=True)
        self._run(self._world.layout.agent(server), AGENT, "testbed.pool.daemon.agent", self._file, server)

    def start_store(self) -> None:
        """The shared storage, with what its file holds."""
        node = self._world.layout.store
        address = self._world.address(node)
        self._run(node, STORE, "testbed.pool.daemon.store", str(self._values), address, str(STORE_PORT))

    def start_dispatcher(self) -> None:
        """The dispatcher's control."""
        self._run(self._world.layout.dispatcher, CONTROL, "testbed.pool.daemon.dispatcher", self._file)

    def start_controller(self) -> None:
        """The central controller."""
        self._run(self._world.layout.controller, CONTROLLER, "testbed.pool.daemon.controller", self._file)

    def kill(self, node: str, name: str) -> None:
        """By SIGKILL; back when it is gone, which is an event."""
        process, _ = self._lab.services(node)[name]
        process.signal(signal.SIGKILL)
        process.wait_gone(GONE)
        self._world.event("killed", node, part=name)

    def end(self) -> None:
        """Kill those that run, and forget what they knew of the pool's course."""
        for node, name in reversed(list(self.all)):
            found = self._lab.services(node).get(name)
            if found and found[0].alive():
                self.kill(node, name)
        self._values.unlink(missing_ok=True)
        for name in ("dispatcher.json", "start.json"):
            (self._world.folder / name).unlink(missing_ok=True)

    def ended(self) -> list[str]:
        """Which of those that were started have ended, each with its last words."""
        said = []
        for node, name in self.all:
            found = self._lab.services(node).get(name)
            if found and not found[0].alive():
                said.append(f"{name} of {node} has ended: {found[0].log_tail()}")
        return said

    @property
    def _file(self) -> str:
        return str(self._world.folder / "pool.json")

    @property
    def _values(self) -> Path:
        return self._lab.node_folder(self._world.layout.store) / "values.json"

    def _run(self, node: str, name: str, module: str, *arguments: str) -> None:
        service = Service(
            name=name,
            argv=(sys.executable, "-m", module, *arguments),
            env={"TESTBED_STATE": str(state_root())},
            root=True,
        )
        self._lab.spawn(node, service)
