"""An intruder: he needs an exponential time for the server in service, then changes its page and plants a file."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.lab.events import Tail
from testbed.net import namespace
from testbed.pool.attack.account import EXPLOIT
from testbed.pool.attack.model import delay

if TYPE_CHECKING:
    from testbed.pool.lab.pools import Pool

LOOK = 0.01
DEFACED = "This page was changed by an intruder."
_SCRIPT = f"""
cd "$0/www" || exit 1
printf '%s' 'planted' > .planted
printf '%s' '<!doctype html><title>pool</title><p>{DEFACED}' > .new && mv .new index.html
"""


class Intruder:
    """Attacks a pool from a node of the lab, from ``start`` to ``stop``. He begins anew with every new server.

    ``mean_s`` is the mean of the time that he needs, in seconds of the pool's time; ``seed`` makes his luck.
    """

    def __init__(self, pool: Pool, node: str, mean_s: float, seed: int) -> None:
        self._pool, self._node, self._mean, self._seed = pool, node, mean_s, seed
        self._stopping = threading.Event()
        self._tail = Tail(pool.lab.folder)
        self._due: tuple[float, str, int] | None = None
        self._thread = threading.Thread(target=self._run, name=f"intruder-{pool.name}", daemon=True)

    def start(self) -> None:
        """Begin with the server that is in service now."""
        assigned = self._pool.events("assigned")
        if assigned:
            self._plan(assigned[-1], time.monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Give up."""
        self._stopping.set()
        self._thread.join()

    def _plan(self, event: dict[str, Any], since: float) -> None:
        epoch = int(event["epoch"])
        needs = delay(self._seed, self._pool.name, epoch, self._mean) / self._pool.speed
        self._due = (since + needs, str(event["node"]), epoch)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK):
            for event in self._tail.new():
                if event["kind"] != "pool" or event.get("pool") != self._pool.name:
                    continue
                if event["what"] == "assigned" and (self._due is None or self._due[2] != event["epoch"]):
                    self._plan(event, event["t"])
                elif event["what"] == "nobody":
                    self._due = None
            if self._due is not None and time.monotonic() >= self._due[0]:
                _, server, epoch = self._due
                self._due = None
                self._compromise(server, epoch)

    def _compromise(self, server: str, epoch: int) -> None:
        """Come in by a request, as the server's own user."""
        lab = self._pool.lab
        with contextlib.suppress(OSError):
            namespace.inside(lab.namespace(self._node), self._ask)
        folder = str(lab.node_folder(server))
        try:
            done = lab.exec(server, ["sh", "-c", _SCRIPT, folder], root=False)
        except TestbedError:
            return  # it is being made anew at this moment
        if done.returncode == 0:
            self._pool.world.event("compromised", server, epoch=epoch, at=self._pool.time())

    def _ask(self) -> None:
        with socket.create_connection((self._pool.address, 80), 1) as connection:
            request = f"GET {EXPLOIT}?run=../../bin/sh HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            connection.recv(4096)
