"""What tests of the ways to publish do with a real lab."""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from typing import Any

import waiting

from testbed.lab.lab import Lab
from testbed.lab.up import up
from testbed.measure.fetch import Download
from testbed.measure.load import run_load
from testbed.plan.load import load_text
from testbed.tor.measure.fresh import fresh_clients
from testbed.tor.node import make_node, start
from testbed.tor.onion.services import OnionServices

NETWORK = "seed: 3\ntor: {authorities: 1, relays: 11, clients: 4}"
"""That of several modules and of ``tests/scenarios/small.yaml``, so that all but the first of them start warm."""
SIZE = 64 * 1024
LIMIT = 180.0
"""Seconds for things to happen, on a busy machine: an HSDir that failed a few times is tried again after 30."""


await_true = partial(waiting.await_true, seconds=LIMIT)


def published(topology: str, *start: Any) -> Lab:
    """A lab of this topology, on a network that comes up warm; of its services only ``shop`` is started."""
    lab = up(load_text(topology)[1], hold=["onions"], warm=True)
    lab.subsystem("onions").start("shop", *start)
    return lab


def kill(lab: Lab, node: str, service: str = "tor") -> None:
    """End a program of a node at once."""
    (process,) = [p for p in lab.processes() if p.node == node and p.service == service and p.alive()]
    process.signal(9)
    process.wait_gone(10)


def revive(lab: Lab, name: str) -> None:
    """Start a node's tor again with the files that it has."""
    node = make_node(lab, name)
    start(lab, [node])
    node.close()


def events(lab: Lab, kind: str, since: int = 0) -> list[dict[str, Any]]:
    """The lab's events of a kind, without the first ``since`` events of all."""
    lines = (lab.folder / "events.jsonl").read_text().splitlines()[since:]
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


def mark(lab: Lab) -> int:
    """How many events there are so far."""
    return len((lab.folder / "events.jsonl").read_text().splitlines())


def holders(onions: OnionServices, service: str = "shop") -> list[str]:
    """Whose descriptor each responsible HSDir holds, in the order of the ring."""
    return [entry.instance for entry in onions.hsdir_map(service)]


def await_holders(onions: OnionServices, wanted: dict[str, int], service: str = "shop") -> None:
    """Wait until so many HSDirs hold each instance's descriptor. They are asked one after the other, and whoever
    publishes may be at work meanwhile: one answer may be of a state in between."""
    deadline, seen = time.monotonic() + LIMIT, Counter[str]()
    while (seen := Counter(holders(onions, service))) != wanted:
        assert time.monotonic() < deadline, f"waited {LIMIT} s for HSDirs to hold {wanted}, they hold {dict(seen)}"


def reached(onions: OnionServices, count: int, service: str = "shop") -> Counter[str]:
    """Whom fresh clients reach; each of them must get the whole file."""
    got = fresh_clients(
        onions.network, count, onions.address(service), size=SIZE, seed=onions.lab.plan.seed, parallel=6
    )
    assert [item.outcome for item in got] == ["ok"] * count, [(item.outcome, item.message) for item in got]
    return Counter(item.instance for item in got)


def fetch(onions: OnionServices, client: str, count: int, service: str = "shop") -> set[str]:
    """Whom one client reaches in ``count`` downloads by one cached descriptor, each over a new circuit."""
    downloads: list[Download] = []
    run_load(
        {client: onions.network.socks_path(client)},
        onions.address(service),
        80,
        "/file",
        size=SIZE,
        seed=onions.lab.plan.seed,
        count=count,
        on_result=downloads.append,
    )
    assert {download.outcome for download in downloads} == {"ok"}
    return {download.instance for download in downloads}
