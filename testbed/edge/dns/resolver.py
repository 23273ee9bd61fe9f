"""Configuration of dnsmasq as the resolver of a provider: it forwards to each zone's authority and caches. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address

from testbed.plan.types import Service

SERVICE = Service(name="resolver", argv=("dnsmasq", "-C", "${dir}/resolver.conf"))

ECS_BITS = 24
"""How much of a client's IPv4 address a resolver tells, as RFC 7871 (11.1) advises."""


def configuration(
    listen: IPv4Address | IPv6Address,
    zones: Iterable[str],
    authority: IPv4Address | IPv6Address,
    *,
    ecs: bool = False,
) -> str:
    """dnsmasq.conf. Questions about ``zones`` go to ``authority``, about anything else nowhere: REFUSED.

    With ``ecs`` each question tells the client's /24 (RFC 7871), and answers are not cached: its cache knows no scopes.
    """
    lines = [
        "keep-in-foreground",
        "log-facility=-",
        "pid-file=",
        "port=53",
        f"listen-address={listen}",
        "bind-interfaces",
        # nothing of the machine that the lab runs on
        "no-resolv",
        "no-hosts",
        "no-poll",
        "cache-size=10000",
        *(f"server=/{zone}/{authority}@{listen}" for zone in dict.fromkeys(zones)),
    ]
    if ecs:
        lines.append(f"add-subnet={ECS_BITS}")
    return "\n".join(lines) + "\n"
