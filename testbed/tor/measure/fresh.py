"""Fresh clients: new tor processes that know the network and no onion service yet. Each fetches one file and ends.

A client keeps a service's descriptor and so stays with what it found first; how a service is split over its instances
shows only among clients that have never asked before. A fresh client is a new tor in the namespace of one of the
network's clients. It starts with the directory documents of a client that is ready, so it need not download them; its
guards and circuits are its own. On two cores about thirty a second can be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from testbed.errors import TestbedError, WaitTimeout
from testbed.measure.content import content_digest
from testbed.measure.fetch import Download, Target, fetch
from testbed.plan.types import Service
from testbed.progress import Progress, Silent
from testbed.runtime.base import UNPRIVILEGED_ID, Process, log_tail
from testbed.tor import torrc
from testbed.tor.control import Control
from testbed.tor.network import TorNetwork
from testbed.tor.node import TorNode, listens, prepare
from testbed.tor.torrc import Paths

PARALLEL = 12
"""Fresh clients at a time; more do not make two cores faster."""
TIMEOUT = 60.0
"""Seconds for one download: longer than the 31 s that one stale introduction point costs."""
LISTEN = 30.0
"""Seconds from the start of a tor until it listens."""
_TICK = 0.01
_TOR = Service(name="tor", argv=("tor", "-f", "${dir}/torrc", "--defaults-torrc", "${dir}/empty"))


@dataclass(frozen=True, slots=True)
class FreshFetch:
    """What became of one fresh client. Times are ``time.monotonic()`` values."""

    node: str
    """The client whose namespace it was in."""
    number: int
    """From 1, in the order in which they were started."""
    started: float
    """Just before its tor was started."""
    ready: float | None
    """When its SOCKS port answered."""
    first_byte: float | None
    last_byte: float | None
    ended: float
    bytes: int
    outcome: str
    """``ok``; ``start``: its tor did not come up; ``bootstrap``: the download failed and tor had no circuit by then;
    otherwise why fetching failed, see ``Download.outcome``."""
    instance: str
    """Who served; empty where none answered."""
    message: str = ""
    """Of a failure: tor's own words."""

    @property
    def ok(self) -> bool:
        """It has the whole file."""
        return self.outcome == "ok"

    @property
    def cut(self) -> bool:
        """It was ended before its outcome was known."""
        return self.outcome == "unfinished"


def fresh_clients(
    network: TorNetwork,
    count: int,
    address: str,
    path: str = "/file",
    *,
    size: int,
    seed: int = 0,
    port: int = torrc.HTTP_PORT,
    nodes: Sequence[str] | None = None,
    parallel: int = PARALLEL,
    timeout: float = TIMEOUT,
    on_result: Callable[[FreshFetch], None] = lambda fetched: None,
    progress: Progress | None = None,
) -> list[FreshFetch]:
    """Let ``count`` fresh clients fetch ``content(size, seed)`` from an onion service, ``parallel`` at a time.

    They are spread over the namespaces of ``nodes`` (all clients). Results are in the order in which they ended, and
    ``on_result`` is called with each as it ends, one at a time. Failures are results; TestbedError if there is no
    client or no consensus. Whatever happens, no process and no file of theirs is left.
    """
    target = Target(address, port, path, size, content_digest(size, seed))
    with FreshClients(network, target, nodes=nodes, timeout=timeout) as clients:
        return clients.many(count, parallel=parallel, on_result=on_result, progress=progress or Silent())


class FreshClients:
    """Makes fresh clients for one target. A context: at its end those that still run are killed."""

    def __init__(
        self, network: TorNetwork, target: Target, *, nodes: Sequence[str] | None = None, timeout: float = TIMEOUT
    ) -> None:
        """Reads the directory documents; TestbedError if there is no consensus, or no client to be beside."""
        self._lab = network.lab
        self._target = target
        self._nodes = list(network.clients if nodes is None else nodes)
        if not self._nodes:
            raise TestbedError("fresh clients need the namespace of a client", remedy="set `tor.clients` to at least 1")
        self._timeout = timeout
        self._files = network.directory().files()
        self._authorities = network.authority_lines()
        self._extra = network.spec.torrc_options
        self._token = secrets.token_hex(2)
        self._number = 0
        self._running: dict[int, Process] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> FreshClients:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def many(
        self,
        count: int,
        *,
        parallel: int = PARALLEL,
        on_result: Callable[[FreshFetch], None] = lambda fetched: None,
        progress: Progress = Silent(),  # noqa: B008 - has no state
    ) -> list[FreshFetch]:
        """``count`` of them, ``parallel`` at a time; see ``fresh_clients``."""
        done: list[FreshFetch] = []
        told = threading.Lock()

        def work(_: int) -> None:
            fetched = self.one()
            with told:
                done.append(fetched)
                on_result(fetched)
                ok = sum(item.ok for item in done)
                progress.update("fresh clients", len(done), count, f"{ok} ok, {len(done) - ok} failed")

        with ThreadPoolExecutor(min(parallel, max(count, 1)), thread_name_prefix="fresh") as pool:
            try:
                for _ in pool.map(work, range(count)):
                    pass
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.stop()  # so that those under way end at once
                raise
        return done

    def one(self) -> FreshFetch:
        """One fresh client, from its start to its end. May be called by several threads."""
        with self._lock:
            self._number += 1
            number = self._number
        node = self._nodes[(number - 1) % len(self._nodes)]
        folder = self._lab.node_folder(node) / f"f{self._token}-{number}"
        try:
            return self._one(node, number, Paths(folder))
        finally:
            self._end(number)
            shutil.rmtree(folder, ignore_errors=True)

    def stop(self) -> None:
        """Kill those under way; their outcome is ``unfinished``, as is that of any made later."""
        self._over.set()
        with self._lock:
            processes = list(self._running.values())
        for process in processes:
            process.signal(signal.SIGKILL)

    def _one(self, node: str, number: int, paths: Paths) -> FreshFetch:
        started = time.monotonic()
        failed = replace(_NOTHING, node=node, number=number, started=started)
        try:
            process = self._start(node, number, paths)
            self._await_socks(paths, process)
        except TestbedError as error:
            outcome = "unfinished" if self._over.is_set() else "start"
            return replace(failed, ended=time.monotonic(), outcome=outcome, message=str(error))
        ready = time.monotonic()
        got = asyncio.run(fetch(node, number, paths.socks, self._target, f"fresh{number}", self._timeout))
        outcome, message = self._judged(got, paths)
        return FreshFetch(
            node,
            number,
            started,
            ready,
            got.first_byte,
            got.last_byte,
            got.ended,
            got.bytes,
            outcome,
            got.instance,
            message,
        )

    def _start(self, node: str, number: int, paths: Paths) -> Process:
        paths.node.mkdir(mode=0o700)
        os.chown(paths.node, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        options = [*torrc.common(paths, self._authorities), ("SocksPort", f"unix:{paths.socks}")]
        prepare(TorNode(node, "client", "", paths), torrc.with_extra(options, self._extra), self._files)
        if self._over.is_set():
            raise TestbedError("no more are wanted")
        # Not by Lab.spawn: hundreds that live for a second would fill the lab's record. The lab's mark they have.
        place = replace(self._lab.place(node), folder=paths.node)
        process = self._lab.runtime(node).spawn(place, _TOR)
        with self._lock:
            self._running[number] = process
        if self._over.is_set():  # stop() came between
            process.signal(signal.SIGKILL)
        return process

    def _await_socks(self, paths: Paths, process: Process) -> None:
        deadline = time.monotonic() + LISTEN
        while not listens(paths.socks):
            if not process.alive():
                raise TestbedError(f"tor ended; its last words:\n{process.log_tail(3)}")
            if time.monotonic() > deadline:
                raise WaitTimeout("tor to listen", LISTEN, process.log_tail(3))
            time.sleep(_TICK)

    def _judged(self, got: Download, paths: Paths) -> tuple[str, str]:
        """The outcome, and for a failure how far tor had come."""
        if got.outcome == "ok":
            return "ok", ""
        if self._over.is_set():
            return "unfinished", ""
        phase = ""
        with contextlib.suppress(TestbedError, OSError), Control("fresh", paths.control, timeout=2) as control:
            phase = control.getinfo("status/bootstrap-phase")
        words = f"{got.outcome}; {phase or 'tor does not answer'}; {log_tail(paths.log, 2)}"
        return got.outcome if "PROGRESS=100" in phase else "bootstrap", words

    def _end(self, number: int) -> None:
        with self._lock:
            process = self._running.pop(number, None)
        if process is not None:
            process.signal(signal.SIGKILL)
            process.wait_gone(10)


_NOTHING = FreshFetch("", 0, 0.0, None, None, None, 0.0, 0, "", "")
