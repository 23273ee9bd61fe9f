"""Two file servers or more behind a dispatcher, and clients; for the tests and benchmarks of moving connections."""

from __future__ import annotations

import hashlib
import os
import random
import time
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any

from bench.own_state import own_state
from testbed.errors import WaitTimeout
from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.model.topology import DefaultsSpec
from testbed.plan.builder import PlanBuilder
from testbed.plan.types import Impairment
from testbed.pool.lab import fileserver
from testbed.pool.lab.clients import Clients
from testbed.pool.lab.dataplane import Service, furnish
from testbed.pool.lab.dispatch import Dispatcher
from testbed.runtime.base import Process

ADDRESS, ADDRESS6 = "10.99.0.1", "fd99::1"
DISPATCHER, CLIENT = "web", "client"


class PoolWorld:
    """Up once made; ``down`` or a ``with`` statement ends it. The first server serves."""

    def __init__(
        self,
        *,
        servers: int = 2,
        link: Impairment | None = None,
        client_link: Impairment | None = None,
        containers: bool = False,
        ipv6: bool = False,
        files: dict[str, int] | None = None,
        rate: int = 0,
    ) -> None:
        self.rate = rate
        self.names = [f"web{number}" for number in range(1, servers + 1)]
        self._state = ExitStack()
        self._state.enter_context(own_state())
        self.lab: Lab | None = None
        self.dispatcher: Dispatcher | None = None
        self.services: dict[str, Process] = {}
        try:
            self._start(link, client_link, containers, ipv6, files or {"index.html": 1024, "big": 16 << 20})
        except BaseException:
            self.down()
            raise

    def _start(
        self,
        link: Impairment | None,
        client_link: Impairment | None,
        containers: bool,
        ipv6: bool,
        files: dict[str, int],
    ) -> None:
        build = PlanBuilder(f"pool-{os.getpid()}", 1, "", DefaultsSpec())
        build.node(DISPATCHER, (), kind="router")
        build.node(CLIENT, ())
        for name in self.names:
            build.node(name, (), runtime="container" if containers else "process")
        for number, name in enumerate((CLIENT, *self.names), 1):
            way = client_link if name == CLIENT else link
            subnet = (f"fd98:{number}::1/64", f"fd98:{number}::2/64") if ipv6 else None
            build.link(DISPATCHER, name, (), forward=way, backward=way, addresses=subnet)
        self.address = ADDRESS6 if ipv6 else ADDRESS
        service = Service(ip_address(self.address), (("tcp", 80),))
        furnish(build, DISPATCHER, self.names, service)
        for name in self.names:
            for path, text in fileserver.files().items():
                build.file(name, path, text)
        plan = build.build()
        assert not build.problems
        self.lab = lab = up(plan, owner=os.getpid())
        for name in self.names:
            folder = lab.node_folder(name) / "www"
            folder.mkdir()
            for path, size in files.items():
                source = random.Random(path)
                with (folder / path).open("wb") as file:
                    for start in range(0, size, 16 << 20):
                        file.write(source.randbytes(min(16 << 20, size - start)))
        self.dispatcher = Dispatcher.of(lab, DISPATCHER, self.names, service)
        for name in self.names:
            self.serve(name)
        self.dispatcher.assign(0, self.names[0])

    def serve(self, name: str) -> None:
        """Start the server of a node and wait until it can be reached."""
        assert self.lab is not None
        control = self.lab.node_folder(name) / fileserver.CONTROL
        control.unlink(missing_ok=True)
        listen = "[::]:80" if ":" in self.address else "0.0.0.0:80"
        process = self.lab.spawn(name, fileserver.service(name, (listen,), rate=self.rate))
        self.services[name] = process
        deadline = time.monotonic() + 20
        while not control.exists():
            if not process.alive() or time.monotonic() > deadline:
                raise WaitTimeout(f"{name} to listen", 20, process.log_tail())
            time.sleep(0.01)

    def client(self, **options: Any) -> Clients:
        """Clients that use the service; back when all are connected."""
        assert self.lab is not None
        return Clients(self.lab, CLIENT, self.address, **options)

    def uploaded(self, name: str) -> dict[str, str]:
        """SHA-256 of the files that a server has been sent."""
        assert self.lab is not None
        folder = self.lab.node_folder(name) / "uploads"
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    def __enter__(self) -> PoolWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """Remove all of it."""
        if self.dispatcher is not None:
            self.dispatcher.close()
        if self.lab is not None:
            self.lab.down()
        self._state.close()
