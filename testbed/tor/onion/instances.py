"""Single nodes of a running network: one that dies, one that comes back, and an instance that publishes again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.progress import Progress, Silent
from testbed.runtime.base import Process, wait_all_gone
from testbed.tor.bringup.readiness import ENOUGH_DIRECTORY, await_condition
from testbed.tor.node import TorNode, make_node, start
from testbed.tor.onion import webserver
from testbed.tor.onion.publication import Publication, descriptor_name
from testbed.tor.onion.publish import Publisher, Turn
from testbed.tor.onion.services import OnionServices

GONE = 10.0
"""Seconds for programs to end after a signal."""
BACK = 60.0
"""Seconds for a relay that comes back to know the network again."""


def signal_number(name: str) -> int:
    """The number of a signal such as ``SIGKILL`` or ``INT``; TestbedError if there is none of that name."""
    word = name.upper()
    try:
        return signal.Signals[word if word.startswith("SIG") else f"SIG{word}"]
    except KeyError:
        raise TestbedError(f"there is no signal {name!r}", remedy="use SIGKILL, SIGINT or SIGTERM") from None


def end(lab: Lab, nodes: Iterable[str], number: int = signal.SIGKILL) -> float:
    """Send a signal to every program of these nodes at once, wait for their end; ``time.monotonic()`` of the signal.

    SIGKILL is a machine that loses its power, but for its kernel, which closes its TCP connections. At SIGINT tor
    takes leave of its circuits (ShutdownWaitLength is 0 here). WaitTimeout if one does not end.
    """
    wanted = set(nodes)
    processes = [process for process in lab.processes() if process.node in wanted and process.alive()]
    silent = wanted - {process.node for process in processes}
    if silent:
        raise TestbedError(f"nothing runs in {', '.join(sorted(silent))}")
    moment = time.monotonic()
    for process in processes:
        process.signal(number)
    for node in sorted(wanted):
        lab.event("ended", node, signal=signal.Signals(number).name)
    wait_all_gone(processes, GONE)
    return moment


def bring_back(lab: Lab, nodes: Iterable[str]) -> None:
    """Start the tor of these relays again with the files that it left, and wait until it knows the network.

    An HSDir comes back without descriptors: tor keeps those of others in memory only.
    """
    tors = [make_node(lab, name) for name in nodes]
    start(lab, tors)
    try:
        await_condition("relays back", tors, ENOUGH_DIRECTORY, limit=BACK, progress=Silent(), alive=tors)
    finally:
        for node in tors:
            node.close()
    for node in tors:
        lab.event("back", node.name)


def publish_again(onions: OnionServices, instance: str, progress: Progress | None = None) -> Publication:
    """Make an instance publish now, by a restart of its tor; left alone it does so after 60 to 120 minutes.

    Returns when every upload has been answered. The web server goes on, or is started if it does not run.
    """
    lab = onions.lab
    service = next(name for name in onions.services if instance in onions.instances(name))
    node = make_node(lab, instance)
    running: dict[str, Process] = {
        process.service: process for process in lab.processes() if process.node == instance and process.alive()
    }
    if "tor" in running:
        running["tor"].signal(signal.SIGINT)
        running["tor"].wait_gone(GONE)
    webserver.ensure(lab, [node], onions.services[service].content.size, lab.plan.seed)
    return _published(onions, service, node, progress or Silent())


def _published(onions: OnionServices, service: str, node: TorNode, progress: Progress) -> Publication:
    wanted = onions.responsible(service)
    label = onions.address(service).removesuffix(".onion")
    publication = Publication(node.name, label, descriptor_name(wanted))
    try:
        Publisher(onions.lab, service, [Turn(node)], [publication], wanted.hsdirs, progress).run()
    finally:
        node.close()
    return publication
