"""The packet filter of a border router (nftables 1.0 or newer). Pure text; ``Address`` and port in, a ruleset out.

Every limit is one of a source address. They are applied before address translation, so that what is dropped costs no
more than a look at its header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from testbed.edge.filters.spec import FilterSpec
from testbed.model.quantities import SECOND

Service = tuple[IPv4Address, int]
"""Address and TCP port."""

TABLE = "edge_filter"
BANNED = "banned"
"""The set of sources that are refused; its elements go by themselves."""
COUNTERS = ("dropped_banned", "dropped_opening", "dropped_held")
SYN_PROXY_SYSCTLS = {
    # the client's last packet of the handshake must not make a connection of its own
    "net/netfilter/nf_conntrack_tcp_loose": "0",
    "net/ipv4/tcp_syncookies": "1",
    "net/ipv4/tcp_timestamps": "1",
}
"""What a border router with a SYN proxy needs."""


def ruleset(interface: str, services: Mapping[Service, Service | None], spec: FilterSpec) -> str:
    """The table of a border router that guards what comes in by ``interface``.

    ``services`` are what clients connect to, each with where its connections are translated to (None: nowhere).
    A SYN proxy guards only those that are translated, and their addresses must be the router's own: what the proxy
    sends to the server starts in the router itself, where no rule of the prerouting hook sees it.
    """
    proxied = {public: inner for public, inner in services.items() if inner is not None} if spec.syn_proxy else {}
    lines = [
        f"table ip {TABLE} {{",
        f"  set services {{ type ipv4_addr . inet_service; elements = {{ {_elements(services)} }}; }}",
        f"  set {BANNED} {{ type ipv4_addr; flags timeout; size 65536; }}",
        "  set opening { type ipv4_addr; flags dynamic,timeout; timeout 10s; size 65536; }",
        "  set held { type ipv4_addr; flags dynamic; size 65536; }",
        *(f"  counter {name} {{ }}" for name in COUNTERS),
        "  chain guard {",
        "    type filter hook prerouting priority -150; policy accept;",
        f'    iifname "{interface}" ip daddr . tcp dport @services goto sources;',
        "  }",
        "  chain sources {",
        f"    ip saddr @{BANNED} counter name dropped_banned drop;",
        "    tcp flags & (fin | syn | rst | ack) == syn update @opening "
        f"{{ ip saddr limit rate over {spec.opening}/second burst {spec.burst} packets }} "
        "counter name dropped_opening drop;",
        f"    ct state new {_held(spec)}",
        "  }",
    ]
    if proxied:
        lines += _syn_proxy(interface, proxied, spec)
    return "\n".join([*lines, "}"]) + "\n"


def _held(spec: FilterSpec) -> str:
    return f"add @held {{ ip saddr ct count over {spec.held} }} counter name dropped_held drop;"


def _syn_proxy(interface: str, proxied: Mapping[Service, Service], spec: FilterSpec) -> list[str]:
    """SYNs are not tracked and answered with a cookie; who returns it gets a connection, made anew to the server."""
    answer = "ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm;"
    arrows = ", ".join(f"{_element(public)} : {_element(inner)}" for public, inner in proxied.items())
    return [
        f"  set proxied {{ type ipv4_addr . inet_service; elements = {{ {_elements(proxied)} }}; }}",
        f"  map inner {{ type ipv4_addr . inet_service : ipv4_addr . inet_service; elements = {{ {arrows} }}; }}",
        "  chain untracked {",
        "    type filter hook prerouting priority -300; policy accept;",
        f'    iifname "{interface}" ip daddr . tcp dport @proxied tcp flags & (fin | syn | rst | ack) == syn notrack;',
        "  }",
        "  chain cookies {",
        "    type filter hook input priority 0; policy accept;",
        f'    iifname "{interface}" ip daddr . tcp dport @proxied {answer}',
        "  }",
        "  chain whole {",
        "    type filter hook output priority -150; policy accept;",
        f"    ip daddr . tcp dport @proxied ct state new {_held(spec)}",
        "  }",
        "  chain translated {",
        "    type nat hook output priority -100; policy accept;",
        "    dnat ip to ip daddr . tcp dport map @inner;",
        "  }",
    ]


def ways_around(text: str) -> str:
    """What has packets pass by all that a ruleset of ours does. No rule is taken out, so that none is missed."""
    chains = [chain for chain in ("guard", "untracked", "whole") if f"chain {chain} {{" in text]
    return "".join(f"insert rule ip {TABLE} {chain} accept\n" for chain in chains)


def ban_commands(source: IPv4Address, spec: FilterSpec) -> str:
    """What ``nft -f -`` is told to refuse a source from now on."""
    element = f"element ip {TABLE} {BANNED}"
    lasts = f"{{ {source} timeout {spec.ban.lasts // SECOND}s }}"
    # an element that is there would keep its old time: put it in, take it out, and put it in anew, all at once
    return f"add {element} {lasts}\ndelete {element} {{ {source} }}\nadd {element} {lasts}\n"


def _elements(services: Iterable[Service]) -> str:
    return ", ".join(_element(service) for service in services)


def _element(service: Service) -> str:
    return f"{service[0]} . {service[1]}"
