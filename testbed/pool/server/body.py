"""What an agent moves: a real server, and the dispatcher's word on who gets requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.lab.state import Folder
from testbed.pool.daemon import rpc
from testbed.pool.lab.layout import CONTROL_PORT
from testbed.pool.server.maker import Maker, ProcessMaker

if TYPE_CHECKING:
    from testbed.pool.agents.clock import Clock
    from testbed.pool.daemon.world import World

AGAIN = 0.1
"""Real seconds between two tries to reach the dispatcher."""
TRIES = 5
"""How often a server is made anew before something must be wrong with it."""
STAGGER = 0.03
"""Real seconds between one server's first being ready and the next one's, so that all begin in the order of names."""


class RealBody:
    """See ``agents.agent.Body``. Making a server anew takes a thread, so that the agent goes on meanwhile."""

    def __init__(self, pool: World, server: str, maker: Maker, clock: Callable[[], Clock]) -> None:
        self._pool, self._server, self._maker, self._clock = pool, server, maker, clock
        address = pool.address(pool.layout.dispatcher)
        self._asking = rpc.Client.to(address, CONTROL_PORT, "the dispatcher", 0.3)
        self._leaving = rpc.Client.to(address, CONTROL_PORT, "the dispatcher", 0.3)
        self._epoch: int | None = None
        self._dead = False
        self._work = threading.Lock()
        self._prepared = False
        self._first = True

    def prepare(self) -> bool:
        """Make the server for the first time, before the pool's time begins; whether nothing is wrong with it."""
        self._prepared = self._renew()
        return self._prepared

    def healthy(self) -> bool:
        """Whether the server that was made still runs; one that is being made is not looked at."""
        return self._work.locked() or self._maker.process is None or self._maker.alive()

    def serve(self, epoch: int) -> None:
        """Have the dispatcher lead clients here; again and again, if it does not answer."""
        self._epoch = epoch
        self._assign(epoch)

    def died(self) -> None:
        """The server has ended by itself: there is no use in waiting for its connections."""
        self._epoch, self._dead = None, True

    def cease(self) -> None:
        """The dispatcher is told when the server is about to be made anew, which comes at once."""
        self._epoch = None

    def initialise(self, done: Callable[[], None]) -> None:
        """Make it anew when no connection needs it any more."""
        threading.Thread(target=self._initialise, args=(done,), name="initialise", daemon=True).start()

    def _assign(self, epoch: int) -> None:
        if self._epoch != epoch:
            return
        try:
            answer = self._asking.call({"op": "serve", "server": self._server, "epoch": epoch})
        except rpc.Lost:
            clock = self._clock()
            clock.at(clock.now() + int(AGAIN * 1e6 * self._pool.spec.speed), lambda: self._assign(epoch))
            return
        if not answer["ok"]:
            self._pool.event("outdated", self._server, epoch=epoch)

    def _initialise(self, done: Callable[[], None]) -> None:
        clock = self._clock()
        with self._work:
            ready = self._prepared
            self._prepared = False
            if not ready:
                self._release()
                ready = self._renew()
        if not ready:
            return
        at = clock.now()
        if self._first:
            place = self._pool.layout.servers.index(self._server)
            at = max(at, int(place * STAGGER * 1e6 * self._pool.spec.speed))
            self._first = False
        clock.at(at, done)

    def _release(self) -> None:
        """Wait until the dispatcher has dealt with the server's connections; without it, for nobody."""
        limit = 60.0 + self._pool.spec.timer / 1e6 / self._pool.spec.speed
        request = {"op": "leave", "server": self._server, "dead": self._dead}
        for _ in range(5):
            try:
                self._leaving.call(request, timeout=limit)
                self._dead = False
                return
            except rpc.Lost:
                time.sleep(AGAIN)
        self._pool.event("unheard", self._server)

    def _renew(self) -> bool:
        """Make it anew; again if that did not work, such as for a server that died meanwhile. Wrong files are final."""
        start = time.monotonic()
        for tried in range(TRIES):
            record = Folder(self._pool.lab.id).read()
            if record is None or record.status == "stopping":
                return False  # nothing may be made in a lab that is being taken down
            try:
                wrong = self._maker.renew()
            except (TestbedError, OSError) as error:  # OSError: what was looked at has just gone
                wrong = [str(error)]
                self._pool.event("failed", self._server, reason=str(error), tried=tried + 1)
                time.sleep(AGAIN)
                continue
            break
        seconds = time.monotonic() - start
        if wrong:
            self._pool.event("alarm", self._server, found=wrong, seconds=seconds)
            return False
        late = seconds > self._pool.spec.reinitialise / 1e6
        self._pool.event("renewed", self._server, seconds=seconds, late=late, steps=self._maker.steps)
        return True


def maker_of(pool: World, server: str) -> Maker:
    """How this server is made anew."""
    if pool.lab.node(server).runtime == "container":
        from testbed.pool.server.container import ContainerMaker

        return ContainerMaker(pool, server)
    return ProcessMaker(pool, server)
