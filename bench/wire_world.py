"""A network whose links are carried by the wire, without the rest of a lab; for its benchmarks and tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from testbed.lab import ownership
from testbed.model.topology import Topology
from testbed.net import build, impair, namespace
from testbed.net.wire import engine
from testbed.net.wire.control import Wire
from testbed.plan.expand import expand
from testbed.plan.types import Plan

T = TypeVar("T")


class World:
    """Up once made; use it as a context manager."""

    def __init__(
        self, topology: dict[str, Any] | Plan, *, hang: float = engine.HANG, command: Sequence[str] | None = None
    ) -> None:
        self.plan = topology if isinstance(topology, Plan) else plan_of(topology)
        self.id = f"{os.getpid() & 0xFFFFFF:08x}"
        self.folder = Path(tempfile.mkdtemp(prefix="tbwire-", dir="/var/tmp"))
        try:
            build.build(self.plan, self.path, {}, "wire")
            wired = [link for link in self.plan.links if impair.is_wired(link, "wire")]
            links = [engine.wire_link(link, self.path, self.plan.seed) for link in wired]
            self.supervisor = engine.start(self.folder, self.id, links, hang=hang, command=command)
        except BaseException:
            self.down()
            raise

    def path(self, node: str) -> Path:
        """The namespace of a node."""
        return ownership.namespace_path(self.id, node)

    def wire(self) -> Wire:
        """A connection to the wire."""
        return Wire(self.folder)

    def inside(self, node: str, work: Callable[[], T]) -> T:
        """Run a function in a node."""
        return namespace.inside(self.path(node), work)

    def popen(self, node: str, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a program in a node."""
        words = ["nsenter", f"--net={self.path(node)}", "--", *argv]
        return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    def run(self, node: str, *argv: str, timeout: float = 60) -> str:
        """Run a program in a node and return its output, whatever its status."""
        process = self.popen(node, argv)
        try:
            return process.communicate(timeout=timeout)[0]
        finally:
            process.kill()
            process.wait()

    def address(self, node: str) -> str:
        """A node's first address."""
        return str(self.plan.address(node))

    def down(self) -> None:
        """Remove all of it."""
        ownership.end_processes(self.id)
        ownership.remove_namespaces(self.id)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def plan_of(topology: dict[str, Any]) -> Plan:
    """The plan of a topology given as plain data."""
    plan, problems = expand(Topology.model_validate({"name": "wire", **topology}))
    if problems:
        raise ValueError(problems)
    return plan


def pair(**link: Any) -> dict[str, Any]:
    """A topology of two nodes, ``a`` and ``b``, and one link."""
    return {"nodes": {"a": None, "b": None}, "links": [{"endpoints": ["a", "b"], **link}]}


def star(count: int, **link: Any) -> dict[str, Any]:
    """A topology of hosts ``h1`` ... around the router ``core``."""
    names = [f"h{number}" for number in range(1, count + 1)]
    return {"nodes": dict.fromkeys(names), "links": [{"endpoints": ["core", name], **link} for name in names]}
