"""The agent of one server: ``python -m testbed.pool.daemon.agent POOL.json SERVER``, in the agent's own namespace.

It runs outside of the server, as root on the host: what has taken over the server can neither stop it nor speak for it.
Killed and started again it begins by making its server anew, as one that has just been added.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

from testbed.pool.agents.agent import Agent
from testbed.pool.agents.machine import Move
from testbed.pool.agents.transport import Message
from testbed.pool.daemon import rpc, world
from testbed.pool.daemon.broadcast import Broadcast
from testbed.pool.daemon.store import RemoteStore
from testbed.pool.lab.layout import STORE_PORT, management_end
from testbed.pool.server.body import RealBody, maker_of

STORE_PATIENCE = 0.15
"""Real seconds after which the store counts as silent."""
LOOK = 0.05
"""Real seconds between two looks at whether the server runs."""
SOCKET, PREPARED = "agent.sock", "prepared"
"""In the agent's folder: where detectors report to, and the mark that the server has been made for the first time."""


class Member:
    """The agent, and what ties it to the lab."""

    def __init__(self, pool: world.World, server: str) -> None:
        self._pool, self._server = pool, server
        node = pool.layout.agent(server)
        self._agent: Agent | None = None
        self._folder: Path = pool.lab.node_folder(node)
        self._body = RealBody(pool, server, maker_of(pool, server), lambda: self._clock)
        if pool.started is None:
            self._body.prepare()
            (self._folder / PREPARED).touch()
        self._clock = pool.clock()
        client = rpc.Client.to(pool.address(pool.layout.store), STORE_PORT, "the store", STORE_PATIENCE)
        start = pool.started
        assert start is not None
        self._store = RemoteStore(client, pool.pool, start, pool.spec.speed)
        end = management_end(pool.lab.plan, node)
        self._transport = Broadcast(pool.pool, end.addresses[0], end.ifname, self._heard)
        self._clock.at(0, self._begin)

    def run(self) -> None:
        """Until it is killed, or something goes wrong that nobody foresaw."""
        threading.Thread(target=self._listen, name="detectors", daemon=True).start()
        self._watch()
        self._clock.wait()

    def _begin(self) -> None:
        """Take part, as a server that is new."""
        if self._agent is not None:
            self._agent.stop()
        schedule, live = self._pool.schedule
        self._agent = Agent(
            self._server,
            clock=self._clock,
            store=self._store,
            transport=self._transport,
            schedule=schedule,
            policy=self._pool.policy,
            body=self._body,
            timing=self._pool.timing,
            live=live,
        )
        self._agent.machine.listener = self._moved
        self._pool.event("state", self._server, state="initialising", at=self._clock.now())
        self._agent.start()

    def _moved(self, move: Move, at: int) -> None:
        self._pool.event("state", self._server, state=move.target.value, move=move.name.lower(), at=at)

    def _heard(self, message: Message) -> None:
        self._clock.at(self._clock.now(), lambda: self._tell(message))

    def _tell(self, message: Message) -> None:
        if self._agent is not None:
            self._agent.receive(message)

    def _attacked(self) -> None:
        if self._agent is not None:
            self._agent.attacked()

    def _watch(self) -> None:
        """A server that has died is not in any state that it could leave: its agent begins again."""
        if self._agent is not None and not self._body.healthy():
            self._pool.event("died", self._server, state=self._agent.machine.state.value, at=self._clock.now())
            self._body.died()
            self._begin()
        self._clock.at(self._clock.now() + int(LOOK * 1e6 * self._pool.spec.speed), self._watch)

    def _listen(self) -> None:
        """Detectors say that they saw an attack on this server."""
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(path))
            while True:
                what = listener.recv(4096).decode(errors="replace")
                self._pool.event("detected", self._server, detector=what, at=self._clock.now())
                self._clock.at(self._clock.now(), self._attacked)


def main(arguments: list[str]) -> None:
    """Run for ever."""
    path, server = arguments
    Member(world.load(path), server).run()


if __name__ == "__main__":
    main(sys.argv[1:])
