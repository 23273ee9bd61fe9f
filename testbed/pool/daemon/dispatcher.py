"""The control of a pool's dispatcher: it follows the highest epoch, and sees to the connections of who leaves.

``python -m testbed.pool.daemon.dispatcher POOL.json``, in the dispatcher's namespace. The data plane is the kernel's,
so while this is away what was assigned stays so.

=========  ==============================  ================================================================
``op``     with                            answer
=========  ==============================  ================================================================
serve      ``server``, ``epoch``           ``ok``: new connections go there; false if a higher epoch is known
leave      ``server``, ``dead``            once nobody needs the server any more: ``seconds`` that it took
status                                     ``serving``, ``epoch``
=========  ==============================  ================================================================

A server that leaves gets requests until the next one takes over, at most ``HAND_OVER`` seconds: it is still whole
(unless it is ``dead``), and is not made anew before ``leave`` is answered. After that nobody gets them. Then its
connections are moved, or left to finish, or reset, as the pool's ``connections`` says, and whatever is left is reset.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from testbed.errors import TestbedError
from testbed.lab.state import write_atomically
from testbed.pool.daemon import rpc, world
from testbed.pool.lab.dispatch import Dispatcher
from testbed.pool.lab.layout import CONTROL_PORT

HAND_OVER = 0.5
"""Seconds that a server which leaves goes on getting requests while nobody has taken over."""
MIGRATE_LIMIT, MIGRATE_GRACE = 3.0, 10.0
"""Seconds that moving all connections may take, and as many more while some are still being moved (on a machine that
stalls)."""
LOOK = 0.01
"""Seconds between two looks at connections that finish."""


class Control:
    """Who serves, and whose connections are being moved."""

    def __init__(self, pool: world.World) -> None:
        self._pool = pool
        layout = pool.layout
        self._dispatcher = Dispatcher.of(pool.lab, layout.dispatcher, layout.servers, pool.service)
        self._state = pool.folder / "dispatcher.json"
        self._changed = threading.Condition()
        self._moving: set[str] = set()
        # leaving has a number too, between the epochs: nothing that is late undoes what came after it
        if self._state.exists():
            saved = json.loads(self._state.read_text())
            self._dispatcher.assign(saved["number"], saved["serving"])

    @property
    def drain_s(self) -> float:
        """Real seconds that connections may take to finish."""
        spec = self._pool.spec
        return (spec.timer if spec.drain is None else spec.drain) / 1e6 / spec.speed

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """See the module."""
        match request["op"]:
            case "serve":
                return {"ok": self._serve(str(request["server"]), int(request["epoch"]))}
            case "leave":
                return {"seconds": self._leave(str(request["server"]), dead=bool(request["dead"]))}
            case "status":
                return {"serving": self._dispatcher.serving, "epoch": self._dispatcher.epoch // 2}
        raise ValueError(f"there is no {request['op']!r}")

    def _serve(self, server: str, epoch: int) -> bool:
        with self._changed:
            old = self._dispatcher.serving
            if server == old and self._dispatcher.epoch == 2 * epoch:
                return True  # asked again, since the answer was lost
            if not self._assign(2 * epoch, server):
                return False
            if old not in (None, server):
                self._start_move(str(old), server)
            else:
                # it left when nobody was there to take over
                for name in self._pool.layout.servers:
                    if name != server and name not in self._moving and self._dispatcher.connections(name):
                        self._start_move(name, server)
            self._changed.notify_all()
        self._pool.event("assigned", server, epoch=epoch, old=old)
        return True

    def _assign(self, number: int, server: str | None) -> bool:
        if not self._dispatcher.assign(number, server):
            return False
        write_atomically(self._state, json.dumps({"number": number, "serving": server}))
        return True

    def _start_move(self, old: str, new: str) -> None:
        self._moving.add(old)
        threading.Thread(target=self._move, args=(old, new), daemon=True).start()

    def _move(self, old: str, new: str) -> None:
        """Deal with the connections of ``old``; whatever happens, it is free afterwards."""
        try:
            detail = self._deal(old, new)
        except TestbedError as error:
            detail = {"mode": self._pool.mode, "error": str(error)}
        try:
            left = len(self._dispatcher.connections(old))
            if left:
                self._dispatcher.move(old, new, "reset", 0)
        except TestbedError as error:
            left, detail["error"] = -1, str(error)
        with self._changed:
            self._moving.discard(old)
            self._changed.notify_all()
        self._pool.event("moved", old, to=new, reset=left, **detail)

    def _deal(self, old: str, new: str) -> dict[str, Any]:
        start = time.monotonic()
        if self._pool.mode == "migrate":
            result = self._dispatcher.move(old, new, "migrate", MIGRATE_LIMIT, grace_s=MIGRATE_GRACE)
            reasons = [failure.reason for failure in result.failed]
            detail = {"moved": result.moved, "failed": len(reasons), "reasons": reasons[:5], "left": result.left}
            return {"mode": "migrate", **detail, "bytes": result.state_bytes, "seconds": result.seconds}
        before = len(self._dispatcher.connections(old))
        if self._pool.mode == "drain":
            while self._dispatcher.connections(old) and time.monotonic() < start + self.drain_s:
                time.sleep(LOOK)
        return {"mode": self._pool.mode, "had": before, "seconds": time.monotonic() - start}

    def _leave(self, server: str, *, dead: bool) -> float:
        start = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._dispatcher.serving != server, 0 if dead else HAND_OVER)
            if self._dispatcher.serving == server and self._assign(self._dispatcher.epoch + 1, None):
                self._pool.event("nobody", server)
            longest = self.drain_s + MIGRATE_LIMIT + MIGRATE_GRACE + HAND_OVER
            if not self._changed.wait_for(lambda: server not in self._moving, longest):
                self._pool.event("stuck", server)
        return time.monotonic() - start


def main(arguments: list[str]) -> None:
    """Serve for ever."""
    pool = world.load(arguments[0])
    control = Control(pool)
    rpc.serve(pool.address(pool.layout.dispatcher), CONTROL_PORT, control.answer)


if __name__ == "__main__":
    main(sys.argv[1:])
