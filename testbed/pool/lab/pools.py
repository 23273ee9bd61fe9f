"""The handle of the pools of a lab: ``lab.subsystem("pool")``."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ApplyError, TestbedError, WaitTimeout
from testbed.faults.tools import programs
from testbed.net import namespace
from testbed.pool.agents.build import with_bits
from testbed.pool.agents.store import Record
from testbed.pool.daemon import rpc, world
from testbed.pool.daemon.agent import SOCKET
from testbed.pool.daemon.store import record_of
from testbed.pool.lab.layout import CONTROL_PORT, STORE_PORT
from testbed.pool.lab.programs import AGENT, CONTROL, CONTROLLER, STORE, Programs
from testbed.pool.server.pristine import lay_out, spoil_files, spoil_image
from testbed.pool.spec import PoolSpec, PoolsSpec
from testbed.progress import Progress, Silent

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

START_LIMIT = 120.0
"""Seconds for all servers to be made for the first time."""
LOOK = 0.01
"""Seconds between two looks at a condition."""


class Pool:
    """One pool of a lab that is up."""

    def __init__(self, lab: Lab, name: str, spec: PoolSpec) -> None:
        self.lab, self.name, self.spec = lab, name, spec
        self.world = world.World(lab, name, spec)
        self.layout = self.world.layout
        self.servers = self.layout.servers
        self._programs = Programs(self.world)
        self._store = self._client(self.layout.store, STORE_PORT, "the store")
        self._control = self._client(self.layout.dispatcher, CONTROL_PORT, "the dispatcher")

    @property
    def address(self) -> str:
        """The service address."""
        return str(self.world.service.address)

    @property
    def speed(self) -> int:
        """Seconds of the pool's time in a real one."""
        return self.spec.speed

    def start(self, progress: Progress | None = None) -> None:
        """Start all programs; back when a server is in service and the pool's time has begun.

        ApplyError if no server can be made; WaitTimeout if that takes too long, with what was seen.
        """
        progress, begun = progress or Silent(), time.monotonic()
        (self.world.folder / "start.json").unlink(missing_ok=True)
        folder = Path(self.lab.record.topology).parent
        lay_out(world.save(self.lab, self.name, with_bits(self.spec, folder)))
        self.start_store()
        self.start_dispatcher()
        for server in self.servers:
            self.start_agent(server)
        self._await(self._made, "the servers to be made", START_LIMIT)
        progress.update(f"pool {self.name}", len(self.servers), len(self.servers))
        wrong = {event["node"]: event["found"] for event in self.events("alarm") if event["t"] >= begun}
        if set(self.servers) <= wrong.keys():
            raise ApplyError(f"no server can be made: {wrong[self.servers[0]][0]}", where=f"pool {self.name}")
        self.world.begin(time.monotonic_ns() + 10**8)
        self.world.event("begins", speed=self.spec.speed, start=self.world.started)
        if self.spec.scheduler == "central":
            self.start_controller()
        self.await_service()

    def stop(self) -> None:
        """End the pool's own programs and forget what they knew; ``start`` begins anew. Servers go on by themselves."""
        self._programs.end()
        self._store.close()
        self._control.close()

    def time(self) -> int:
        """The pool's time, microseconds. TestbedError before it has begun."""
        return self.at(time.monotonic())

    def at(self, monotonic: float) -> int:
        """The pool's time at a moment of the monotonic clock, which the times of all events are."""
        start = self.world.started
        if start is None:
            raise TestbedError(f"pool {self.name} has not been started")
        return int((monotonic - start / 1e9) * self.speed * 1e6)

    def real(self, pool_time: int) -> float:
        """The reverse of ``at``."""
        return (self.world.started or 0) / 1e9 + pool_time / 1e6 / self.speed

    def record(self) -> Record:
        """What the store holds. ``rpc.Lost`` when it does not answer."""
        return record_of(self._store.call({"op": "get", "key": self.name})["value"])

    def states(self) -> dict[str, str]:
        """The state of each server, as the store has it."""
        record = self.record()
        return {name: record.servers[name].state.value for name in self.servers if name in record.servers}

    def serving(self) -> str | None:
        """Whom the dispatcher leads new clients to. ``rpc.Lost`` when it does not answer."""
        found = self._control.call({"op": "status"})["serving"]
        return None if found is None else str(found)

    def await_service(self, but: str | None = None, timeout: float = 30) -> str:
        """Wait until a server, another one than ``but``, gets the clients and the store says so too; its name."""

        def found() -> str | None:
            try:
                serving = self.serving()
                agreed = serving not in (None, but) and self.record().holder == serving
            except rpc.Lost:
                return None
            return serving if agreed else None

        self._await(lambda: found() is not None, f"a server of {self.name} in service", timeout)
        return self.await_service(but, timeout) if (server := found()) is None else server

    def await_state(self, server: str, *states: str, timeout: float = 30) -> None:
        """Wait until the store has a server in one of these states."""

        def reached() -> bool:
            try:
                return self.states().get(server) in states
            except rpc.Lost:
                return False

        self._await(reached, f"{server} to be {' or '.join(states)}", timeout)

    def await_event(self, what: str, server: str = "", *, since: float = 0, timeout: float = 30) -> dict[str, Any]:
        """Wait for an event of this pool after ``since`` (monotonic seconds)."""
        found: list[dict[str, Any]] = []

        def seen() -> bool:
            found[:] = [event for event in self.events(what, server) if event["t"] >= since]
            return bool(found)

        self._await(seen, f"event {what} {server}".strip(), timeout)
        return found[0]

    def events(self, what: str = "", server: str = "") -> list[dict[str, Any]]:
        """What happened in this pool so far, all or of one sort or server."""
        from testbed.lab.events import read

        return [
            event
            for event in read(self.lab.folder)
            if event["kind"] == "pool"
            and event.get("pool") == self.name
            and what in ("", event["what"])
            and server in ("", event["node"])
        ]

    def attacked(self, server: str, by: str = "somebody") -> None:
        """A detector says that it noticed an attack on a server. TestbedError if its agent does not listen."""
        path = self.lab.node_folder(self.layout.agent(server)) / SOCKET
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reporting:
            try:
                reporting.sendto(by.encode(), str(path))
            except OSError as error:
                raise TestbedError(f"the agent of {server} cannot be told of an attack: {error}") from error

    def kill_server(self, server: str) -> None:
        """Kill what runs in a server, as a crash would."""
        programs.send(
            {pid: started for pid, started in self.lab.pids(server).items() if not self._holds(pid)}, signal.SIGKILL
        )
        self.world.event("killed", server, part="server")

    def kill_agent(self, server: str) -> None:
        """Kill a server's agent. The server itself goes on."""
        self._programs.kill(self.layout.agent(server), AGENT)

    def start_agent(self, server: str) -> None:
        """Start it, or start it again."""
        self._programs.start_agent(server)

    def kill_store(self) -> None:
        """Kill the shared storage; its file stays."""
        self._programs.kill(self.layout.store, STORE)

    def start_store(self) -> None:
        """Start it, or start it again; back when it answers."""
        self._programs.start_store()
        self._await(lambda: self._answers(self._store, {"op": "get", "key": self.name}), "the store", 30)

    def kill_dispatcher(self) -> None:
        """Kill the dispatcher's control. What it has assigned stays so."""
        self._programs.kill(self.layout.dispatcher, CONTROL)

    def start_dispatcher(self) -> None:
        """Start it, or start it again; back when it answers."""
        self._programs.start_dispatcher()
        self._await(lambda: self._answers(self._control, {"op": "status"}), "the dispatcher", 30)

    def kill_controller(self) -> None:
        """Kill the central controller. TestbedError if the pool has none."""
        self._check_central()
        self._programs.kill(self.layout.controller, CONTROLLER)

    def start_controller(self) -> None:
        """Start it, or start it again. TestbedError if the pool has none."""
        self._check_central()
        self._programs.start_controller()

    def tamper(self, server: str, what: str = "files") -> str:
        """Spoil what a server is made from, ``files`` or ``image``; its path. See ``server.pristine``."""
        path = spoil_files(self.world, server) if what == "files" else spoil_image(self.world, server)
        self.world.event("tampered", server, part=what, path=path)
        return path

    def _made(self) -> bool:
        """Whether each server has been made for the first time, well or not. ApplyError if an agent has ended."""
        if ended := self._programs.ended():
            raise ApplyError("; ".join(ended), where=f"pool {self.name}")
        return all(self._programs.prepared(server).exists() for server in self.servers)

    def _check_central(self) -> None:
        if self.spec.scheduler != "central":
            raise TestbedError(
                f"pool {self.name} has no central controller; its scheduler is {self.spec.scheduler}",
                where=f"pool.{self.name}.scheduler",
                remedy="write `scheduler: central`",
            )

    def _holds(self, pid: int) -> bool:
        """Whether a process only holds the namespace of a server in a container."""
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0infinity")

    def _client(self, node: str, port: int, what: str) -> rpc.Client:
        def connect(timeout: float) -> socket.socket:
            address = (self.world.address(node), port)
            return namespace.inside(self.lab.namespace(node), lambda: socket.create_connection(address, timeout))

        return rpc.Client(connect, what, 2)

    def _answers(self, client: rpc.Client, question: dict[str, Any]) -> bool:
        try:
            client.call(question)
        except rpc.Lost:
            return False
        return True

    def _await(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise WaitTimeout(what, timeout, self._seen())
            time.sleep(LOOK)

    def _seen(self) -> str:
        try:
            seen = f"states {self.states()}, clients go to {self.serving()}"
        except TestbedError as error:
            seen = error.what
        alarms = [str(event.get("found")) for event in self.events("alarm")]
        return "; ".join([seen, *self._programs.ended(), *alarms])


class Pools:
    """The pools of a lab, by name."""

    def __init__(self, lab: Lab) -> None:
        sections = PoolsSpec.model_validate(lab.plan.sections["pool"]).root
        self.lab = lab
        self.pools = {name: Pool(lab, name, spec) for name, spec in sections.items()}

    def __getitem__(self, name: str) -> Pool:
        """TestbedError names the pools that exist."""
        try:
            return self.pools[name]
        except KeyError:
            raise TestbedError(f"there is no pool {name!r}", remedy=f"pools: {', '.join(self.pools)}") from None

    def start(self, progress: Progress | None = None) -> None:
        """Start all."""
        for pool in self.pools.values():
            pool.start(progress)
