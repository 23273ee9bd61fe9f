"""Configuration of knot (3.2 or newer) as the authority of the campus: zones, and views by who asks.

Pure text. Views are those of knot's module geoip in its mode ``subnet``: the prefix that the resolver's address is in
decides, or with ``ecs`` the prefix of the client that the resolver tells of (RFC 7871).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from testbed.plan.types import File, Service

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SERVICE = Service(name="knot", argv=("knotd", "-c", "${dir}/knot.conf"))
"""Runs unprivileged: the node's namespace must leave port 53 to everybody (``UNPRIVILEGED_PORTS``)."""
UNPRIVILEGED_PORTS = ("net/ipv4/ip_unprivileged_port_start", "0")

_SERVER = """\
server:
    rundir: "${{dir}}"
    listen: {listen}@53
    # names are given, or knot would ask the resolver of the machine for that of the host, and wait for it in vain
    identity: "{name}"
    nsid: "{name}"
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    edns-client-subnet: {ecs}
log:
  - target: stdout
    any: info
database:
    storage: "${{dir}}"
    journal-db-max-size: 8M
    kasp-db-max-size: 8M
    timer-db-max-size: 8M
"""


@dataclass(frozen=True, slots=True)
class View:
    """What those who ask from some prefixes are told. Names that it lacks are answered from the zone."""

    prefixes: tuple[Network, ...]
    answers: Mapping[str, Address]
    """Address by host name."""


def zone_of(host: str) -> str:
    """The zone that a host name is served from: all but its first label, or a name of one label itself."""
    return host.partition(".")[2] or host


def zones_of(hosts: Iterable[str]) -> dict[str, list[str]]:
    """Host names by zone, both in the order in which they came."""
    zones: dict[str, list[str]] = {}
    for host in hosts:
        zones.setdefault(zone_of(host), []).append(host)
    return zones


def files(
    name: str,
    listen: Address,
    hosts: Mapping[str, Address],
    views: Sequence[View] = (),
    *,
    ttl: int = 30,
    ecs: bool = False,
) -> list[File]:
    """knot.conf, one file a zone, and where there are views one a zone with them. ``ttl`` is in seconds.

    ``name`` is what the server calls itself, ``hosts`` what it tells everybody whom no view knows.
    """
    head = _SERVER.format(listen=listen, name=name, ecs="on" if ecs else "off")
    modules, zones, made = [], [], []
    for number, (zone, names) in enumerate(zones_of(hosts).items()):
        made.append(
            File(path=f"{number}.zone", text=zone_text(zone, listen, {host: hosts[host] for host in names}, ttl))
        )
        module = ""
        if views:
            made.append(File(path=f"{number}.views", text=views_text(names, views)))
            modules.append(
                f'  - id: v{number}\n    config-file: "${{dir}}/{number}.views"\n    ttl: {ttl}\n    mode: subnet\n'
            )
            module = f"    module: mod-geoip/v{number}\n"
        zones.append(
            f'  - domain: {zone}\n    file: "${{dir}}/{number}.zone"\n{module}'
            "    zonefile-sync: -1\n    journal-content: none\n"
        )
    text = head + ("mod-geoip:\n" + "".join(modules) if modules else "") + "zone:\n" + "".join(zones)
    return [File(path="knot.conf", text=text), *made]


def zone_text(zone: str, server: Address, hosts: Mapping[str, Address], ttl: int) -> str:
    """A master file (RFC 1035, 5) whose only name server is ``server``."""
    lines = [
        f"$TTL {ttl}",
        f"{zone}. SOA ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 {ttl}",
        f"{zone}. NS ns.{zone}.",
        f"ns.{zone}. {_type(server)} {server}",
        *(f"{host}. {_type(address)} {address}" for host, address in hosts.items()),
    ]
    return "\n".join(lines) + "\n"


def views_text(hosts: Iterable[str], views: Sequence[View]) -> str:
    """The configuration of the module geoip for some hosts of one zone."""
    lines = []
    for host in hosts:
        told = [
            f"  - net: {prefix}\n    {_type(view.answers[host])}: {view.answers[host]}"
            for view in views
            if host in view.answers
            for prefix in view.prefixes
        ]
        if told:
            lines += [f"{host}:", *told]
    return "\n".join(lines) + "\n"


def _type(address: Address) -> str:
    return "AAAA" if address.version == 6 else "A"
