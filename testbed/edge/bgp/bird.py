"""Configuration of bird2: who speaks to whom, and the usual policy between customers, peers and providers. Pure.

The policy is that of Gao and Rexford (2001): a route learnt from a customer is preferred to one from a peer, and that
to one from a provider; to peers and providers go own routes and those of customers alone, to customers go all.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from testbed.plan.types import Service

Relation = Literal["customer", "peer", "provider", "internal"]
"""What the other side is to this one; ``internal``: a router of the same autonomous system."""

PREFERENCE: dict[Relation, int] = {"customer": 300, "peer": 200, "provider": 100}
"""BGP's LOCAL_PREF; more wins."""

SERVICE = Service(name="bird", argv=("bird", "-f", "-c", "${dir}/bird.conf", "-s", "${dir}/bird.ctl"), root=True)
"""As root: it writes the routes of its namespace."""

_CODES: dict[Relation, int] = {"customer": 1, "peer": 2, "provider": 3}


@dataclass(frozen=True, slots=True)
class Timers:
    """Seconds. A session without a word for ``hold`` is over (RFC 4271, 6.5)."""

    hold: int = 9
    keepalive: int = 3


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a speaker."""

    name: str
    """Of the other side."""
    local: IPv4Address
    remote: IPv4Address
    asn: int
    """Of the other side."""
    relation: Relation
    reflect: bool = False
    """Internal only: the other side is a client of this route reflector (RFC 4456)."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A router that speaks BGP."""

    router_id: IPv4Address
    asn: int
    sessions: tuple[Session, ...]
    originates: tuple[IPv4Network, ...] = ()
    """Prefixes that it announces as its own."""


def protocol_name(session: Session) -> str:
    """The name by which bird knows a session."""
    return "to_" + "".join(letter if letter.isalnum() else "_" for letter in session.name)


def configuration(speaker: Speaker, timers: Timers = Timers()) -> str:
    """bird.conf. Routes of BGP go into the main table; what is announced is blackholed nowhere but in bird's own."""
    parts = [
        f"router id {speaker.router_id};",
        "log stderr all;",
        "protocol device { scan time 1; }",
        # the kernel's own routes are better than any of BGP, which have a metric
        "protocol kernel { metric 64; ipv4 { import none; export where source = RTS_BGP; }; }",
    ]
    if speaker.originates:
        routes = " ".join(f"route {prefix} unreachable;" for prefix in speaker.originates)
        parts.append(f"protocol static own {{ ipv4; {routes} }}")
    parts += [_session(session, speaker.asn, timers) for session in speaker.sessions]
    return "\n".join(parts) + "\n"


def _session(session: Session, asn: int, timers: Timers) -> str:
    lines = [
        f"protocol bgp {protocol_name(session)} {{",
        f"    local {session.local} as {asn};",
        f"    neighbor {session.remote} as {session.asn};",
        f"    hold time {timers.hold};",
        f"    keepalive time {timers.keepalive};",
        "    connect delay time 1;",
        "    connect retry time 1;",
        "    error wait time 1, 4;",
        # on a link of both: its next hops need no further route, and its end is noticed when the link goes down
        "    direct;",
    ]
    if session.relation == "internal":
        if session.reflect:
            lines.append("    rr client;")
        lines.append("    ipv4 { import all; export where source ~ [RTS_STATIC, RTS_BGP]; next hop self; };")
    else:
        lines += ["    ipv4 {", *_policy(session.relation, asn), "    };"]
    return "\n".join([*lines, "}"])


def _policy(relation: Relation, asn: int) -> list[str]:
    """Where a route came from is told to the other routers of this system by a large community (RFC 8092)."""
    origin = f"({asn}, 0, {_CODES[relation]})"
    lines = [
        "        import filter {",
        f"            bgp_large_community.delete([({asn}, 0, *)]);",
        f"            bgp_large_community.add({origin});",
        f"            bgp_local_pref = {PREFERENCE[relation]};",
        "            accept;",
        "        };",
    ]
    if relation == "customer":
        return [*lines, "        export where source ~ [RTS_STATIC, RTS_BGP];"]
    customers = f"({asn}, 0, {_CODES['customer']}) ~ bgp_large_community"
    return [*lines, f"        export where source = RTS_STATIC || bgp_path.len = 0 || {customers};"]
