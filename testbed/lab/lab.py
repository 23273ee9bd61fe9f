"""A lab that is up: run programs in its nodes, watch it, take it down."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ApplyError, TestbedError, nearest
from testbed.lab.ownership import namespace_path, processes_in
from testbed.lab.state import Folder, Record
from testbed.plan.types import Node, Plan, Service
from testbed.runtime import runtimes
from testbed.runtime.base import Place, Process, Runtime

SETTLE = 0.2
"""Seconds for which a program must run before it counts as started: time enough to refuse its configuration."""

if TYPE_CHECKING:
    from testbed.net.impair import EngineName

Listener = Callable[[float, str, str, dict[str, Any]], None]
"""Called with monotonic time, kind, node and detail of each event."""


class Lab:
    """The handle of one running lab. Several may exist for the same lab, also in different processes."""

    def __init__(self, folder: Folder, record: Record, plan: Plan) -> None:
        self.record = record
        self.plan = plan
        self.listeners: list[Listener] = []
        self._folder = folder
        self._runtimes: dict[str, Runtime] = {}
        self._subsystems: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name that users know it by."""
        return self.record.name

    @property
    def id(self) -> str:
        """Eight hexadecimal digits; part of every name that the kernel and the engine see."""
        return self.record.id

    @property
    def folder(self) -> Path:
        """The lab's state on disk; gone after ``down``."""
        return self._folder.path

    def node_folder(self, node: str) -> Path:
        """A node's own folder, at the same path inside its container."""
        return self._folder.node(node)

    def namespace(self, node: str) -> Path:
        """The path by which a node's network namespace can be entered."""
        return namespace_path(self.id, node)

    def node(self, name: str) -> Node:
        """A node of the plan; TestbedError names the ones that exist."""
        try:
            return self.plan.node(name)
        except KeyError:
            names = [node.name for node in self.plan.nodes]
            remedy = nearest(name, names, f"its nodes: {', '.join(names[:20])}")
            raise TestbedError(f"lab {self.name!r} has no node {name!r}", remedy=remedy) from None

    def place(self, node: str) -> Place:
        """Where the node's things are, for a runtime."""
        return Place(self.id, self.node(node), self.node_folder(node), self.namespace(node))

    def runtime(self, node: str) -> Runtime:
        """The runtime of a node."""
        name = self.node(node).runtime
        # one of each kind a lab: the engine's client is costly to make
        with self._lock:
            if name not in self._runtimes:
                self._runtimes[name] = runtimes.make(name)
            return self._runtimes[name]

    def spawn(self, node: str, service: Service) -> Process:
        """Start a program in a node; it ends with the lab. ApplyError when it cannot be started."""
        process = self.runtime(node).spawn(self.place(node), service)
        self.keep_process(process, service)
        return process

    def keep_process(self, process: Process, service: Service) -> None:
        """Remember a program of a node that was started in another way, so that it counts as one of the lab's."""
        node = process.node
        facts = {"node": node, "pid": process.pid, "started": process.started, "service": service.model_dump()}
        with self._lock, self._folder.processes.open("a") as file:
            file.write(json.dumps(facts) + "\n")
        self.event("process", node, service=service.name, pid=process.pid)

    def start_services(self) -> None:
        """Start the programs that the plan gives to nodes. ApplyError if one fails within ``SETTLE`` seconds."""
        started = [self.spawn(node.name, service) for node in self.plan.nodes for service in node.services]
        deadline = time.monotonic() + SETTLE
        while started and time.monotonic() < deadline:
            for process in started:
                if _failed(process):
                    status = process.exit_status()
                    how = "ended" if status is None else f"ended with status {status}"
                    raise ApplyError(
                        f"service {process.service} {how}; its last words:\n{process.log_tail()}",
                        where=f"node {process.node}",
                    )
            time.sleep(0.01)

    def processes(self) -> list[Process]:
        """Every program that was started in the lab, dead ones included."""
        return [process for process, _ in self._started()]

    def services(self, node: str) -> dict[str, tuple[Process, Service]]:
        """The programs that were started in a node, by name: each one's latest process, and how to start it again."""
        return {service.name: (process, service) for process, service in self._started() if process.node == node}

    def _started(self) -> Iterator[tuple[Process, Service]]:
        try:
            lines = self._folder.processes.read_text().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            facts = json.loads(line)
            service = Service.model_validate(facts["service"])
            log = self.node_folder(facts["node"]) / f"{service.name}.log"
            yield Process(facts["node"], service.name, facts["pid"], facts["started"], log), service

    def pids(self, node: str) -> dict[int, int]:
        """Pid and start time of every living process in a node, whoever started it."""
        return processes_in([self.namespace(node)])

    def command(self, node: str, argv: Sequence[str], *, root: bool = True, terminal: bool = False) -> list[str]:
        """The command line that runs ``argv`` in a node from the host."""
        return self.runtime(node).command(self.place(node), argv, root=root, terminal=terminal)

    def exec(
        self, node: str, argv: Sequence[str], *, timeout: float = 30, root: bool = True, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node and return its output and status; ``check``: ApplyError unless the status is 0."""
        try:
            done = subprocess.run(
                self.command(node, argv, root=root),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ApplyError(f"{argv[0]} did not end within {timeout:g} s", where=f"node {node}") from error
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise ApplyError(f"{' '.join(argv)} ended with status {done.returncode}: {said}", where=f"node {node}")
        return done

    def subsystem(self, name: str) -> Any:
        """The handle of a subsystem; TestbedError if the topology has no such section."""
        from testbed.subsystem import subsystems

        if name not in self.plan.sections or name not in subsystems():
            raise TestbedError(f"lab {self.name!r} has no {name!r}", remedy=f"its topology needs a section `{name}`")
        if name not in self._subsystems:
            self._subsystems[name] = subsystems()[name].attach(self)
        return self._subsystems[name]

    def keep_subsystem(self, name: str, handle: Any) -> None:
        """Remember the handle of a subsystem that has just been started."""
        self._subsystems[name] = handle

    def impair_engine(self, *, needed: bool) -> EngineName | None:
        """What impairs links here. ``needed``: choose if nothing has yet; PreflightError if no engine works."""
        if needed and self.record.impair is None:
            from testbed.net.impair import choose

            self.record = replace(self.record, impair=choose(None))
            self.save()
        return self.record.impair

    def event(self, kind: str, node: str = "", **detail: Any) -> None:
        """Record that something happened, on disk and to every listener of this handle (others: ``lab.events``)."""
        now = time.monotonic()
        line = json.dumps({"t": now, "wall": time.time(), "kind": kind, "node": node, "by": os.getpid(), **detail})
        with self._lock, self._folder.events.open("a") as file:
            file.write(line + "\n")
        for listener in list(self.listeners):
            listener(now, kind, node, detail)

    def save(self) -> None:
        """Write the record, so that other processes see it."""
        self._folder.write(self.record)

    def facts(self) -> dict[str, Any]:
        """The record as plain data."""
        return asdict(self.record)

    def down(self) -> None:
        """Take the lab down; see ``down.down``."""
        from testbed.lab.down import down

        down(self.name)


def _failed(process: Process) -> bool:
    """Whether a program has ended in failure; of one in a container only its end can be seen, unless it is over at
    once and well."""
    if process.popen is not None:
        return bool(process.exit_status())
    return process.started >= 0 and not process.alive()
