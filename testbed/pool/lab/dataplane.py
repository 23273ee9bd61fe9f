"""The dispatcher's part of a plan: marks, routing tables, and the packet filter that leads clients to servers.

Every server has the service address on ``lo``; the dispatcher routes and translates nothing. A connection's mark
(conntrack) says whose it is. A new one gets the mark of the server in service, and keeps it. So what a move changes
is one number for each connection. docs/migration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from testbed.plan.types import Address

if TYPE_CHECKING:
    from testbed.plan.builder import PlanBuilder

TABLE = "testbed_pool"
FIRST_MARK = 0x100
RESET = 0xFD
"""Connections that are to end: whoever sends gets a reset."""
FIRST_ROUTES = 1000
"""Routing table of the first server."""
FIRST_RULE = 1000
"""Priority of the rule that leads to it."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the pool gives: one address, and its ports as (``tcp`` or ``udp``, number)."""

    address: Address
    ports: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        wrong = [kind for kind, _ in self.ports if kind not in ("tcp", "udp")]
        if wrong or not self.ports:
            raise ValueError(f"ports are tcp or udp, at least one; not {wrong or 'none'}")


def mark_of(place: int) -> int:
    """Mark of the connections of the server at this place in the pool's list."""
    return FIRST_MARK + place


def table_of(place: int) -> int:
    """Number of the routing table that leads to the server at this place."""
    return FIRST_ROUTES + place


def furnish(build: PlanBuilder, dispatcher: str, servers: Sequence[str], service: Service) -> None:
    """Give the nodes of a plan what the dispatcher needs; the router ``dispatcher`` has a link to each server."""
    width = service.address.max_prefixlen
    everything = "0.0.0.0/0" if service.address.version == 4 else "::/0"
    family: Literal[4, 6] = 4 if service.address.version == 4 else 6
    for place, server in enumerate(servers):
        build.loopback(server, f"{service.address}/{width}")
        build.sysctl(server, "net/ipv4/ip_unprivileged_port_start", "0")
        build.route(dispatcher, everything, server, table=table_of(place))
        build.rule(dispatcher, priority=FIRST_RULE + place, fwmark=mark_of(place), table=table_of(place), family=family)
    build.nft(dispatcher, ruleset(service))
    # tracking must not judge sequence numbers by what it saw before a move
    build.sysctl(dispatcher, "net/netfilter/nf_conntrack_tcp_be_liberal", "1")


def ruleset(service: Service) -> str:
    """The packet filter, before anybody serves.

    * What comes to the service address on a port of the service gets the mark of the server in service, if it opens
      a connection (UDP: always), or its connection's own. Nobody in service: it is dropped, and the client's own
      repetition waits for the next server. Tracking knows a connection for some time after its reset; what opens one
      from the same port is none of it.
    * What a server sends for a connection that is not its own is dropped. So one that does not obey, or has been
      taken over, cannot go on with connections that were moved.
    """
    family = "ip" if service.address.version == 4 else "ip6"
    lead: list[str] = []
    for kind in ("tcp", "udp"):
        ports = ", ".join(str(port) for of, port in service.ports if of == kind)
        if not ports:
            continue
        match, serving = f"{kind} dport {{ {ports} }}", "meta l4proto . th dport map @serving"
        if kind == "tcp":
            opens = f"{match} tcp flags & (fin | syn | rst | ack) == syn"
            lead += [
                f"{match} ct state new ct mark set {serving}",
                f"{opens} ct mark {RESET} ct mark set 0",
                f"{opens} ct mark 0 ct mark set {serving}",
                f"{match} ct mark {RESET} reject with tcp reset",
                f"{match} ct mark != 0 meta mark set ct mark accept",
            ]
        else:
            lead += [f"{match} meta mark set {serving}", f"{match} meta mark != 0 accept"]
    lines = [
        f"table inet {TABLE} {{",
        "  map serving { type inet_proto . inet_service : mark ; }",
        "  set owners { type ifname . mark ; }",
        "  chain lead {",
        *(f"    {rule}" for rule in lead),
        "    meta l4proto { tcp, udp } drop",
        "  }",
        "  chain answer {",
        f"    ct mark {RESET} reject with tcp reset",
        "    iifname . ct mark @owners accept",
        "    drop",  # also what tracking calls invalid, which has no mark
        "  }",
        "  chain arrive {",
        "    type filter hook prerouting priority mangle ;",
        f"    {family} daddr {service.address} jump lead",
        f"    {family} saddr {service.address} meta l4proto tcp jump answer",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def owners(interfaces: Sequence[str]) -> str:
    """Commands that say which interface (by the kernel's name) leads to which server, in the pool's order."""
    elements = ", ".join(f'"{ifname}" . {mark_of(place)}' for place, ifname in enumerate(interfaces))
    return f"add element inet {TABLE} owners {{ {elements} }}\n"


def assignment(service: Service, mark: int | None) -> str:
    """Commands that lead new connections to the server with ``mark``; None: to nobody."""
    commands = [f"flush map inet {TABLE} serving"]
    if mark is not None:
        elements = ", ".join(f"{kind} . {port} : {mark}" for kind, port in service.ports)
        commands.append(f"add element inet {TABLE} serving {{ {elements} }}")
    return "\n".join(commands) + "\n"
