"""What the kernel holds for a namespace, decoded just far enough to be compared with a plan."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network

from testbed.net.netlink import Netlink, attributes
from testbed.plan.types import Address, Interface, Network, Rule

_GETLINK, _GETADDR, _GETROUTE, _GETNEIGH, _GETRULE = 18, 22, 26, 30, 34
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_OPERSTATE = 1, 3, 4, 10, 16
_IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 52, 53
_UP, _LOWER_UP = 0x1, 0x10000
_PERMANENT = 0x80
_LOCAL, _KERNEL, _UNICAST, _TO_TABLE = 255, 2, 1, 1
_RTA_TABLE = 15
_FRA_DST, _FRA_SRC, _FRA_IIF, _FRA_PRIORITY, _FRA_MARK, _FRA_TABLE, _FRA_PROTOCOL = 1, 2, 3, 6, 10, 15, 21


@dataclass(frozen=True, slots=True)
class Device:
    """A network interface as the kernel has it."""

    index: int
    ifname: str
    mac: str
    mtu: int
    up: bool
    carrier: bool
    """Whether the other end is there and up; immediate, unlike the operational state."""
    operational: int
    """Operational state (RFC 2863)."""
    master: int
    altname: str


def devices(netlink: Netlink) -> dict[str, Device]:
    """All interfaces by kernel name."""
    found = map(_device, netlink.dump(_GETLINK, bytes(16)))
    return {device.ifname: device for device in found}


def device(netlink: Netlink, index: int) -> Device:
    """One interface. OSError if there is none.

    Asked for one alone, kernels since 6.8 bring its operational state up to date first (rtnl_getlink).
    """
    return _device(netlink.get(_GETLINK, struct.pack("=BxHiII", 0, 0, index, 0, 0)))


def _device(data: bytes) -> Device:
    _, _, index, flags = struct.unpack_from("=BxHiI", data)
    parts = attributes(data, 16)
    other = attributes(parts.get(_IFLA_PROP_LIST, b""), 0).get(_IFLA_ALT_IFNAME, b"")
    return Device(
        index=index,
        ifname=parts[_IFLA_IFNAME].rstrip(b"\0").decode(),
        mac=parts.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu=struct.unpack("=I", parts[_IFLA_MTU])[0],
        up=bool(flags & _UP),
        carrier=bool(flags & _LOWER_UP),
        operational=parts[_IFLA_OPERSTATE][0],
        master=struct.unpack("=I", parts[_IFLA_MASTER])[0] if _IFLA_MASTER in parts else 0,
        altname=other.rstrip(b"\0").decode(),
    )


def addresses(netlink: Netlink) -> set[tuple[int, Interface]]:
    """(interface index, address) of every address but link-local ones."""
    found: set[tuple[int, Interface]] = set()
    for data in netlink.dump(_GETADDR, bytes(8)):
        _, length, _, scope, index = struct.unpack_from("=BBBBI", data)
        parts = attributes(data, 8)
        if scope == 0:  # global
            found.add((index, ip_interface((parts.get(2) or parts[1], length))))
    return found


def routes(netlink: Netlink) -> list[tuple[Network, Address, int, int]]:
    """(destination, next hop, interface index, table) of every unicast route, duplicates included, but for those that
    the kernel adds with an address. A route without a next hop has the unspecified address there."""
    found: list[tuple[Network, Address, int, int]] = []
    for data in netlink.dump(_GETROUTE, bytes(12)):
        family, length, _, _, table, protocol, _, kind = struct.unpack_from("=BBBBBBBB", data)
        if table == _LOCAL or kind != _UNICAST or protocol == _KERNEL:
            continue
        parts = attributes(data, 12)
        destination = parts.get(1) or bytes(4 if family == 2 else 16)
        hop = ip_address(parts[5]) if 5 in parts else ip_address(bytes(len(destination)))
        number = struct.unpack("=I", parts[_RTA_TABLE])[0] if _RTA_TABLE in parts else table
        found.append((ip_network((destination, length)), hop, struct.unpack("=I", parts[4])[0], number))
    return found


def rules(netlink: Netlink) -> list[Rule]:
    """Every policy routing rule but the kernel's own, in the order in which they are asked."""
    found: list[Rule] = []
    for data in netlink.dump(_GETRULE, bytes(12)):
        family, to_length, from_length, _, table, _, _, action = struct.unpack_from("=BBBBBBBB", data)
        parts = attributes(data, 12)
        protocol = parts.get(_FRA_PROTOCOL, b"\0")[0]
        if family not in (2, 10) or protocol == _KERNEL or action != _TO_TABLE:
            continue

        def number(key: int, parts: dict[int, bytes] = parts) -> int | None:
            return struct.unpack("=I", parts[key])[0] if key in parts else None

        found.append(
            Rule(
                family=4 if family == 2 else 6,
                priority=number(_FRA_PRIORITY) or 0,
                iif=parts[_FRA_IIF].rstrip(b"\0").decode() if _FRA_IIF in parts else None,
                source=ip_network((parts[_FRA_SRC], from_length)) if _FRA_SRC in parts else None,
                destination=ip_network((parts[_FRA_DST], to_length)) if _FRA_DST in parts else None,
                fwmark=number(_FRA_MARK),
                table=number(_FRA_TABLE) or table,
            )
        )
    return sorted(found, key=lambda rule: (rule.family, rule.priority))


def permanent_neighbours(netlink: Netlink) -> set[tuple[int, Address, str]]:
    """(interface index, address, hardware address) of every permanent neighbour entry."""
    found: set[tuple[int, Address, str]] = set()
    for data in netlink.dump(_GETNEIGH, bytes(12)):
        _, index, state = struct.unpack_from("=BxxxiH", data)
        if state & _PERMANENT:
            parts = attributes(data, 12)
            found.add((index, ip_address(parts[1]), parts.get(2, b"").hex(":")))
    return found
