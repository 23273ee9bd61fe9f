"""The dispatcher of a pool: which server gets new connections, whose the standing ones are, and moving these."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.errors import TestbedError
from testbed.net import conntrack, namespace
from testbed.net.conntrack import Conntrack, FourTuple
from testbed.net.nft import Nft
from testbed.net.wire.realtime import in_real_time
from testbed.pool.lab.dataplane import RESET, Service, assignment, mark_of, owners
from testbed.pool.lab.fileserver import CONTROL
from testbed.pool.migrate import native
from testbed.pool.migrate.capture import Capture
from testbed.pool.migrate.carry import Failure, Hook, Outcome, Side, carry
from testbed.pool.migrate.peer import Peer, PeerError
from testbed.pool.migrate.sockets import Core
from testbed.pool.migrate.tcp import abort

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Mode = Literal["migrate", "drain", "reset"]

_OPEN = frozenset({conntrack.SYN_RECEIVED, conntrack.ESTABLISHED, conntrack.FIN_WAIT, conntrack.CLOSE_WAIT})
"""States of connections that need their server."""
_LOOK = 0.005
"""Seconds between two looks at connections that still have to be accepted, or to end."""


_PRIORITY = 10
"""Among real-time programs; the wire that carries the packets is before it."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where the dispatcher finds a server."""

    namespace: Path
    ifname: str
    """The dispatcher's interface to it, by the kernel's name."""
    control: Path
    """Its control socket; see ``migrate.peer``."""
    delay_s: float = 0.0
    """One-way delay of its link to the dispatcher."""


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What became of the connections of a server."""

    old: str
    new: str
    mode: Mode
    moved: int = 0
    failed: tuple[Failure, ...] = ()
    """With the reason; those not ``lost`` go on at the old server."""
    left: int = 0
    """Open connections that the old server still has."""
    state_bytes: int = 0
    """Bytes of both queues of all moved connections."""
    seconds: float = 0.0
    """Until the last connection was at work at the new server."""
    steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds in each step of the move."""


class Dispatcher:
    """Needs the data plane of ``dataplane`` in ``path``, the dispatcher's namespace; ``servers`` in the same order.

    Calls may come from several threads: ``assign`` at any time, ``move`` one after the other.
    """

    def __init__(self, path: Path, service: Service, servers: Mapping[str, Server]) -> None:
        self._service = service
        self._servers = dict(servers)
        self._marks = {name: mark_of(place) for place, name in enumerate(servers)}
        self._nft = Nft(path)
        self._nft.run(owners([server.ifname for server in servers.values()]))
        self._table = namespace.inside(path, Conntrack)
        self.core: Core = native.core()
        """What does the work on sockets; found now, since it may have to be compiled."""
        self.patience_s = 5.0
        """How long a server may take for an answer."""
        self._epoch = -1
        self._serving: str | None = None
        self._assigning = threading.Lock()
        self._moving = threading.Lock()
        self._reading = threading.Lock()

    @classmethod
    def of(cls, lab: Lab, dispatcher: str, servers: Sequence[str], service: Service) -> Dispatcher:
        """The dispatcher of a lab whose plan was given its data plane by ``dataplane.furnish``."""
        found = {}
        for link in lab.plan.links_of(dispatcher):
            peer = link.peer(dispatcher).node
            if peer in servers:
                there = link.forward if link.a.node == dispatcher else link.backward
                found[peer] = Server(
                    lab.namespace(peer),
                    link.end(dispatcher).ifname,
                    lab.node_folder(peer) / CONTROL,
                    (there.delay_us + there.jitter_us) / 1e6,
                )
        return cls(lab.namespace(dispatcher), service, {name: found[name] for name in servers})

    def close(self) -> None:
        """Let go of the namespace. What was assigned stays so."""
        self._nft.close()
        self._table.close()

    @property
    def serving(self) -> str | None:
        """The server that gets new connections."""
        return self._serving

    @property
    def epoch(self) -> int:
        """The highest epoch that was seen; -1 before the first."""
        return self._epoch

    def assign(self, epoch: int, server: str | None) -> bool:
        """New connections go to ``server`` from now on (None: to nobody); False and nothing if ``epoch`` is not
        higher than all before. TestbedError for a server that is not of this pool.
        """
        mark = None if server is None else self._mark(server)
        with self._assigning:
            if epoch <= self._epoch:
                return False
            self._nft.run(assignment(self._service, mark))
            self._epoch, self._serving = epoch, server
            return True

    def connections(self, server: str) -> list[FourTuple]:
        """The open TCP connections that are this server's."""
        mark = self._mark(server)
        with self._reading:
            return [entry.tuple for entry in self._table.by_mark(mark) if entry.state in _OPEN]

    def move(
        self, old: str, new: str, mode: Mode, limit_s: float, hook: Hook | None = None, grace_s: float = 0.0
    ) -> MoveResult:
        """Deal with the connections that ``old`` has, after new ones were assigned to ``new``.

        ``migrate`` moves them live; what cannot be moved goes on at ``old`` and is in the result. ``drain`` waits for
        their end. Both take at most ``limit_s`` seconds; ``migrate`` as many as ``grace_s`` more while ``old`` still
        gives connections. ``reset`` ends them: at once if the server still gives them up, else at the next packet of
        either side. Call it too for what is left before a server goes away, so that its clients hear of it.
        """
        self._mark(old), self._mark(new)
        start = time.perf_counter()
        with self._moving:
            if mode == "migrate":
                return self._migrate(old, new, start, start + limit_s, grace_s, hook)
            if mode == "reset":
                self._reset(old)
                return MoveResult(old, new, mode, seconds=time.perf_counter() - start)
            left = self._drain(old, start + limit_s)
            return MoveResult(old, new, mode, left=left, seconds=time.perf_counter() - start)

    def _migrate(
        self, old: str, new: str, start: float, deadline: float, grace_s: float, hook: Hook | None
    ) -> MoveResult:
        if old == new:
            raise TestbedError(f"{old} cannot take over from itself")
        outcome, end, left = namespace.in_thread(lambda: self._carry(old, new, deadline, grace_s, hook))
        return MoveResult(
            old,
            new,
            "migrate",
            moved=outcome.moved,
            failed=tuple(outcome.failed),
            left=left,
            state_bytes=outcome.state_bytes,
            seconds=end - start,
            steps=outcome.steps,
        )

    def _carry(
        self, old: str, new: str, deadline: float, grace_s: float, hook: Hook | None
    ) -> tuple[Outcome, float, int]:
        """What was moved, when the last one was, and how many are left. The thread ends in another namespace."""
        in_real_time(_PRIORITY)  # clients wait, and for a few milliseconds only
        outcome, end = Outcome(), time.perf_counter()
        with ExitStack() as stack:
            sides = []
            for name in (old, new):  # it stays in the namespace of the last one
                server = self._servers[name]
                peer = stack.enter_context(
                    closing(Peer(name, server.control, server.namespace, timeout=self.patience_s))
                )
                namespace.enter(server.namespace)
                capture = stack.enter_context(closing(Capture(self._service.address)))
                sides.append(Side(peer, self._mark(name), capture, server.delay_s))
            source, target = sides
            stack.callback(source.peer.put_back)
            stay: list[FourTuple] = []

            def ahead(back: list[FourTuple]) -> None:
                with suppress(PeerError):  # then nothing comes
                    source.peer.ask(but=_ends([*stay, *back]))

            while True:
                stay = [item.connection for item in outcome.failed if item.connection and not item.lost]
                batch = source.peer.give(but=_ends(stay))
                if batch:
                    with self._reading:
                        outcome.add(carry(batch, source, target, self._table, self.core, ahead, hook))
                    end = time.perf_counter()
                    if end < deadline + grace_s:
                        continue
                left = self.connections(old)
                if not set(left) - set(stay) or time.perf_counter() > deadline:
                    return outcome, end, len(left)
                time.sleep(_LOOK)  # some are in the middle of a handshake, or not accepted yet

    def _drain(self, old: str, deadline: float) -> int:
        """Wait, and say how many are left."""
        while (left := self.connections(old)) and time.perf_counter() < deadline:
            time.sleep(_LOOK * 4)
        return len(left)

    def _reset(self, old: str) -> None:
        server = self._servers[old]
        try:
            with closing(Peer(old, server.control, server.namespace)) as peer:
                while given := peer.give():
                    for item in given:
                        abort(item.connection)
                        item.close_files()
        except PeerError:
            pass  # then each client is told when it says something
        with self._reading:
            entries = [entry.tuple for entry in self._table.by_mark(self._mark(old))]
            self._table.set_marks(entries, RESET)

    def _mark(self, server: str) -> int:
        try:
            return self._marks[server]
        except KeyError:
            names = ", ".join(self._marks)
            raise TestbedError(f"{server!r} is no server of this pool", remedy=f"its servers: {names}") from None


def _ends(connections: Sequence[FourTuple]) -> list[tuple[str, int]]:
    """The clients' ends, as servers know them."""
    return [(str(item.client), item.client_port) for item in connections]
