"""Packet filters of a fault: one nftables table a node, named after the lab and the fault, made in one transaction.

Each rule counts what it drops, so that a fault can be proved by packets that it took.
"""

from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from testbed.errors import ApplyError
from testbed.faults.base import FaultError, Memory
from testbed.net import namespace
from testbed.plan.types import Address, Network

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

BEFORE_ALL = -300
"""Priority of the hooks: before connection tracking (NF_IP_PRI_RAW)."""
WORKERS = 4
DISCARD = 9
"""Port of the discard protocol (RFC 863), for packets that are only to be seen."""
_SEEN_WITHIN = 0.5

T = TypeVar("T")


def table(lab: Lab, memory: Memory) -> str:
    """The name of a fault's tables."""
    return f"testbed_{lab.id}_{memory['id'].replace('-', '_')}"


def each(nodes: Iterable[str], work: Callable[[str], T]) -> list[T]:
    """``work`` for every node, a few at a time; the first error is raised once all are done."""
    with ThreadPoolExecutor(WORKERS) as pool:
        futures = [pool.submit(work, node) for node in nodes]
    return [future.result() for future in futures]


def drop(lab: Lab, node: str, memory: Memory, rules: Mapping[str, Sequence[str]], family: str = "inet") -> None:
    """Make the fault's table in a node: by hook, the packets that are dropped there, each as an nft expression."""
    chains = "".join(_chain(hook, [f"{rule} counter drop" for rule in matches]) for hook, matches in rules.items())
    add(lab, node, f"table {family} {table(lab, memory)} {{\n{chains}}}\n")


def _chain(hook: str, rules: Iterable[str]) -> str:
    head = f" chain {hook} {{\n  type filter hook {hook} priority {BEFORE_ALL}\n"
    return head + "".join(f"  {rule}\n" for rule in rules) + " }\n"


def add(lab: Lab, node: str, script: str) -> None:
    """Run an nft script in a node's network namespace: all of it or nothing. ApplyError says what nft did not take."""
    _nft(lab, node, ["-f", "-"], script)


def remove(lab: Lab, node: str, memory: Memory, family: str = "inet") -> None:
    """Take the fault's table away; fine if there is none."""
    name = f"{family} {table(lab, memory)}"
    add(lab, node, f"add table {name}\ndelete table {name}\n")


def rules(lab: Lab, node: str, memory: Memory, family: str = "inet") -> list[dict[str, Any]] | None:
    """The rules of the fault's table as nft lists them; None if there is no table."""
    try:
        listed = _nft(lab, node, ["-j", "list", "table", family, table(lab, memory)], "")
    except ApplyError as error:
        if "No such file or directory" in error.what:
            return None
        raise
    return [item["rule"] for item in json.loads(listed)["nftables"] if "rule" in item]


def packets(lab: Lab, node: str, memory: Memory, family: str = "inet") -> int:
    """How many packets the fault's rules have dropped in a node."""
    found = rules(lab, node, memory, family) or []
    return sum(part["counter"]["packets"] for rule in found for part in rule["expr"] if "counter" in part)


def verify(lab: Lab, node: str, memory: Memory, count: int, family: str = "inet") -> None:
    """Read back that the table has ``count`` rules. FaultError if not."""
    found = rules(lab, node, memory, family)
    if found is None or len(found) != count:
        seen = "no such table" if found is None else f"{len(found)} rules"
        raise FaultError(f"node {node}: {count} rules were set in table {table(lab, memory)}; the kernel shows {seen}")


def verify_removed(lab: Lab, node: str, memory: Memory, family: str = "inet") -> None:
    """FaultError if the table is still there."""
    if rules(lab, node, memory, family) is not None:
        raise FaultError(f"node {node}: table {table(lab, memory)} is still there")


def try_out(lab: Lab, node: str, memory: Memory, send: Callable[[], bool], family: str = "inet") -> bool | None:
    """Whether a packet that ``send`` sends is dropped by the fault's rules in ``node``; None: it could not be sent."""
    before = packets(lab, node, memory, family)
    deadline = time.monotonic() + _SEEN_WITHIN
    while True:
        sent = send()
        if packets(lab, node, memory, family) > before:
            return True
        if not sent:
            return None
        if time.monotonic() > deadline:
            return False


def verify_sending(lab: Lab, nodes: Iterable[str], memory: Memory, count: int, send: Callable[[str], bool]) -> str:
    """Read back that each node has ``count`` rules, and see that they take a packet that the node itself sends.

    FaultError if one does not take it; a node that has no way to send it is no mistake.
    """
    nodes = list(nodes)

    def look(node: str) -> bool:
        verify(lab, node, memory, count)
        dropped = try_out(lab, node, memory, lambda: send(node))
        if dropped is False:
            raise FaultError(f"node {node} sends what it should drop")
        return bool(dropped)

    dropped = [node for node, hit in zip(nodes, each(nodes, look), strict=True) if hit]
    return f"filters are in force; a packet was dropped in: {', '.join(dropped) or 'none, since none could be sent'}"


def datagram(lab: Lab, source: str, target: Address, port: int = DISCARD, *, device: str = "") -> bool:
    """Send one UDP packet from a node, out by ``device`` if given; whether it was sent."""

    def send() -> bool:
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            if device:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            try:
                sender.sendto(b"testbed", (str(target), port))
            except OSError:
                return False  # dropped at once, or no way there
        return True

    return namespace.inside(lab.namespace(source), send)


def connect(lab: Lab, source: str, target: Address, port: int) -> bool:
    """Send the first packet of a TCP connection from a node and forget it; whether it was sent."""

    def send() -> bool:
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_STREAM) as sender:
            sender.setblocking(False)
            return sender.connect_ex((str(target), port)) in (0, errno.EINPROGRESS)

    return namespace.inside(lab.namespace(source), send)


def addresses(lab: Lab, nodes: Iterable[str]) -> list[Address]:
    """All addresses of some nodes."""
    return [
        interface.ip for node in nodes for link in lab.plan.links_of(node) for interface in link.end(node).addresses
    ]


def matches(direction: str, targets: Iterable[Address | Network]) -> list[str]:
    """nft expressions for packets whose ``saddr`` or ``daddr`` is among ``targets``, one a family."""
    targets = list(targets)
    found = []
    for version, word in ((4, "ip"), (6, "ip6")):
        those = ", ".join(str(target) for target in targets if target.version == version)
        if those:
            found.append(f"{word} {direction} {{ {those} }}")
    return found


def _nft(lab: Lab, node: str, arguments: list[str], script: str) -> str:
    lab.node(node)
    command = ["nsenter", f"--net={lab.namespace(node)}", "nft", *arguments]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        first = re.sub(r"^/dev/stdin:", "", (done.stderr.strip() or "no word of why").splitlines()[0])
        raise ApplyError(f"nft: {first}", where=f"node {node}")
    return done.stdout
