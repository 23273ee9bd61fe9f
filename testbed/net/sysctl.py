"""Kernel settings of a node's namespace: what every node needs, and what the plan adds. Set, then read back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.errors import ApplyError
from testbed.plan.types import Node, Plan

_EVERY_INTERFACE = ("all", "default", "lo")


def of_node(plan: Plan, node: Node) -> dict[str, str]:
    """What a node's namespace needs whatever the machine's own settings are; namespaces inherit some of those."""
    linked = (address for link in plan.links_of(node.name) for address in link.end(node.name).addresses)
    ipv6 = any(address.version == 6 for address in (*linked, *node.loopback))
    forward = "1" if node.kind == "router" else "0"
    values = {
        "net/ipv4/ip_forward": forward,
        "net/ipv4/conf/all/rp_filter": "0",
        "net/ipv4/conf/default/rp_filter": "0",
        "net/ipv4/ping_group_range": "0 2147483647",
        # without IPv6 addresses in the plan every interface would still send router solicitations and MLD reports
        "net/ipv6/conf/all/disable_ipv6": "0" if ipv6 else "1",
        "net/ipv6/conf/default/disable_ipv6": "0" if ipv6 else "1",
    }
    if ipv6:
        values["net/ipv6/conf/all/forwarding"] = forward
    if node.kind == "switch":
        values["net/bridge/bridge-nf-call-iptables"] = "0"
    return values | {key: value for key, value in node.sysctls.items() if interface_of(key) is None}


def of_interfaces(node: Node) -> dict[str, str]:
    """The settings of the plan that exist only once an interface is there."""
    return {key: value for key, value in node.sysctls.items() if interface_of(key) is not None}


def interface_of(key: str) -> str | None:
    """The kernel name of the interface that a setting belongs to, None for one of the whole namespace."""
    parts = key.split("/")
    if len(parts) == 5 and parts[2] in ("conf", "neigh") and parts[3] not in _EVERY_INTERFACE:
        return parts[3]
    return None


def write(node: Node, values: Mapping[str, str]) -> None:
    """Set ``values`` in the calling thread's namespace. ApplyError if one is unknown, refused or reads back otherwise.

    Of the settings that a node needs anyway, those of a feature that the kernel has not are left out.
    """
    for key, value in values.items():
        where = f"node {node.name}"
        path = Path("/proc/sys", key)
        try:
            path.write_text(value)
            seen = path.read_text().split()
        except FileNotFoundError:
            if key not in node.sysctls and key.startswith(("net/ipv6/", "net/bridge/")):
                continue
            raise ApplyError(f"this kernel has no sysctl {key}", where=where) from None
        except OSError as error:
            raise ApplyError(f"sysctl {key} does not take {value!r}: {error.strerror}", where=where) from error
        if seen != value.split():
            raise ApplyError(f"sysctl {key} reads {' '.join(seen)!r} after {value!r} was set", where=where)
