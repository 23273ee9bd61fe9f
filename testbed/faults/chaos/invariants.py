"""What must be as before once every fault is healed: reachability, links, programs, and nothing of ours beside them."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.faults.chaos.echo import Pair, reached
from testbed.faults.faults import Faults
from testbed.faults.tools import programs
from testbed.lab import links, ownership
from testbed.net import readback, requests
from testbed.net.netlink import Netlink
from testbed.net.wire.state import STATE

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

SETTLE = 10.0
"""Seconds after which what has not come back counts as lost. Programs need some to start, IPv6 to find its way."""
MOST_PAIRS = 400
"""More pairs of nodes than this are sampled."""
_ESTIMATE = 3.0
"""Seconds for which the first look waits for answers."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that is not as it must be."""

    kind: str
    """`fault` (it did not take alone), `heal`, `left`, `link`, `node`, `program`, `reach`, `port`, `host`."""
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Picture:
    """A lab at one moment."""

    reach: frozenset[Pair]
    nodes: dict[str, frozenset[str]]
    """What the kernel holds for each node, in words."""
    programs: Counter[str]
    """Where, and the command; how many of each."""
    services: frozenset[str]
    ports: frozenset[str]


def pairs_of(lab: Lab, seed: int, most: int = MOST_PAIRS) -> list[Pair]:
    """Which node is to reach which address: the first of each family of every other node, or a sample of them."""
    addresses: dict[str, list[str]] = {}
    for node in lab.plan.nodes:
        if node.kind == "switch":
            continue
        found: dict[int, str] = {}
        for interface in chain.from_iterable(link.end(node.name).addresses for link in lab.plan.links_of(node.name)):
            found.setdefault(interface.version, str(interface.ip))
        addresses[node.name] = list(found.values())
    pairs = [
        (source, target, address)
        for source, own in addresses.items()
        for target, others in addresses.items()
        for address in others
        if own and source != target
    ]
    return pairs if len(pairs) <= most else sorted(random.Random(f"pairs {seed}").sample(pairs, most))


def look(lab: Lab, pairs: Sequence[Pair], timeout: float = _ESTIMATE) -> Picture:
    """The lab as it is; what does not answer within ``timeout`` seconds is taken for out of reach."""
    names = [node.name for node in lab.plan.nodes]
    with ThreadPoolExecutor(4) as pool:
        nodes = dict(zip(names, pool.map(lambda name: _node(lab, name), names), strict=True))
        ports = frozenset(chain.from_iterable(pool.map(lambda name: _ports(lab, name), names)))
    services = frozenset(
        f"{name}/{service}" for name in names for service, (process, _) in lab.services(name).items() if process.alive()
    )
    return Picture(reached(lab, pairs, timeout), nodes, _programs(lab), services, ports)


def violations(lab: Lab, before: Picture, pairs: Sequence[Pair], timeout: float = SETTLE) -> list[Violation]:
    """What is not as ``before``; it is waited for up to ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        left = max(deadline - time.monotonic(), 0.5)
        now = look(lab, sorted(before.reach), min(left, _ESTIMATE))
        found = [*_left(lab), *_links(lab), *_compare(before, now)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _compare(before: Picture, now: Picture) -> list[Violation]:
    found = []
    for node, held in before.nodes.items():
        found += [Violation("node", f"{node} has lost: {item}") for item in sorted(held - now.nodes[node])]
        found += [Violation("node", f"{node} has in addition: {item}") for item in sorted(now.nodes[node] - held)]
    found += [Violation("program", f"{name} does not run") for name in sorted(before.services - now.services)]
    gone, new = before.programs - now.programs, now.programs - before.programs
    found += [Violation("program", f"gone: {name}") for name in sorted(gone)]
    found += [Violation("left", f"a process: {name}") for name in sorted(new)]
    found += [Violation("port", f"nobody listens on {port}") for port in sorted(before.ports - now.ports)]
    found += [
        Violation("reach", f"{source} does not reach {target} ({address})")
        for source, target, address in sorted(before.reach - now.reach)
    ]
    return found


def _left(lab: Lab) -> list[Violation]:
    found = [Violation("left", f"fault {entry.id} ({entry.state})") for entry in Faults(lab).entries()]
    found += [Violation("left", f"control group {path}") for path in _groups(lab)]
    stopped = [pid for pid in ownership.processes(lab.id) if programs.state(pid) in ("T", "t")]
    if stopped:
        found.append(Violation("left", f"stopped processes: {ownership.describe(stopped)}"))
    return found


def _groups(lab: Lab) -> list[str]:
    groups = set()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if kind in ("cgroup", "cgroup2"):
            groups |= {str(path) for path in Path(point).glob(f"tb-{lab.id}-*")}
    return sorted(groups)


def _links(lab: Lab) -> list[Violation]:
    """Whether each link does to packets what the plan says, and has all that the plan gives it."""
    found = []
    for link in lab.plan.links:
        try:
            if links.impairment(lab, link) != (link.forward, link.backward):
                found.append(Violation("link", f"{link.name} is not impaired as planned"))
            links.verify(lab, link)
            for end in (link.a, link.b):
                found += [Violation("link", f"{end.node} lacks {what}") for what in links.missing(lab, end)]
                if not links.device(lab, end).carrier:
                    found.append(Violation("link", f"{end.node}:{end.interface} has no carrier"))
        except (TestbedError, OSError) as error:
            found.append(Violation("link", f"{link.name}: {error}"))
    return found


def _node(lab: Lab, node: str) -> frozenset[str]:
    """Interfaces with their settings, addresses, routes, neighbours, and tables of the packet filter."""

    def read(netlink: Netlink) -> list[str]:
        devices = readback.devices(netlink)
        names = {device.index: name for name, device in devices.items()}
        return [
            *(f"interface {one.ifname} {one.mac} mtu {one.mtu} {_state(one.up)}" for one in devices.values()),
            *(f"address {address} of {names.get(index)}" for index, address in readback.addresses(netlink)),
            *(
                f"route {to} via {via} of {names.get(index)} in table {table}"
                for to, via, index, table in readback.routes(netlink)
            ),
            *(requests.rule_text(rule) for rule in readback.rules(netlink)),
            *(
                f"neighbour {address} {mac} of {names.get(index)}"
                for index, address, mac in readback.permanent_neighbours(netlink)
            ),
        ]

    enter = ["nsenter", f"--net={lab.namespace(node)}", "--", "nft", "list", "tables"]
    try:
        tables = subprocess.run(enter, capture_output=True, text=True, timeout=30, check=False).stdout.splitlines()
    except FileNotFoundError:  # without nft, no fault can have made a table
        tables = []
    return frozenset(links.in_node(lab, node, read) + tables)


def _state(up: bool) -> str:
    return "up" if up else "down"


def _ports(lab: Lab, node: str) -> list[str]:
    """TCP ports on which somebody listens in a node (proc(5), state 0A)."""

    def read(_: Netlink) -> list[str]:
        ports = set()
        for file in ("tcp", "tcp6"):
            try:
                lines = Path(f"/proc/thread-self/net/{file}").read_text().splitlines()[1:]
            except FileNotFoundError:  # no IPv6 here
                continue
            ports |= {int(fields[1].rpartition(":")[2], 16) for line in lines if (fields := line.split())[3] == "0A"}
        return [f"TCP port {port} of {node}" for port in ports]

    return links.in_node(lab, node, read)


def _programs(lab: Lab) -> Counter[str]:
    """The lab's processes, without those that have just been forked, and without the wire, which a fault may need and
    which stays with the lab."""
    places = {os.stat(lab.namespace(node.name)).st_ino: node.name for node in lab.plan.nodes}
    wire = (lab.folder / STATE).exists()
    found: Counter[str] = Counter()
    for pid in ownership.processes(lab.id):
        try:
            place = places.get(os.stat(f"/proc/{pid}/ns/net").st_ino, "")
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended while we looked
        if place or not (wire and ("testbed.net.wire" in command or "wire-core" in command)):
            found[f"{place or 'beside the nodes'}: {command}"] += 1
    return found
