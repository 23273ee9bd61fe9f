"""The central controller: ``python -m testbed.pool.daemon.controller POOL.json``, in a namespace of its own."""

from __future__ import annotations

import sys

from testbed.pool.agents.controller import Controller
from testbed.pool.daemon import rpc, world
from testbed.pool.daemon.agent import STORE_PATIENCE
from testbed.pool.daemon.broadcast import Broadcast
from testbed.pool.daemon.store import RemoteStore
from testbed.pool.lab.layout import STORE_PORT, management_end


def main(arguments: list[str]) -> None:
    """Run for ever."""
    pool = world.load(arguments[0])
    clock = pool.clock()
    start = pool.started
    assert start is not None
    client = rpc.Client.to(pool.address(pool.layout.store), STORE_PORT, "the store", STORE_PATIENCE)
    end = management_end(pool.lab.plan, pool.layout.controller)

    def heard(message: object) -> None:
        clock.at(clock.now(), controller.step)

    controller = Controller(
        pool.layout.controller,
        clock=clock,
        store=RemoteStore(client, pool.pool, start, pool.spec.speed),
        transport=Broadcast(pool.pool, end.addresses[0], end.ifname, heard),
        schedule=pool.schedule[0],
        policy=pool.policy,
        timing=pool.timing,
    )
    clock.at(0, controller.start)
    clock.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
