"""What a node's network consists of, as netlink requests: one small function a thing."""

from __future__ import annotations

from pyroute2.netlink.rtnl import (
    RTM_DELLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWLINKPROP,
    RTM_NEWNEIGH,
    RTM_NEWQDISC,
    RTM_NEWROUTE,
    RTM_NEWRULE,
)
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import sched_tbf, tcmsg

from testbed.net.netlink import Request, encode
from testbed.plan.types import MAIN_TABLE, End, Interface, Link, Neighbour, Route, Rule

_AF_INET, _AF_INET6 = 2, 10
_IFF_UP = 1
_NUD_PERMANENT = 0x80
_NODAD = 0x02
_PROTO_STATIC, _SCOPE_UNIVERSE, _UNICAST = 4, 0, 1
_TABLE_IN_ATTRIBUTE, _TO_TABLE = 252, 1
_ROOT = 0xFFFFFFFF
QDISC_HANDLE = 0x7B000000
"""``7b00:``, the handle of every queueing discipline of ours."""
LOOPBACK = 1


def _family(version: int) -> int:
    return _AF_INET if version == 4 else _AF_INET6


def veth(link: Link, a_namespace: int, b_namespace: int) -> Request:
    """Both ends at once, each born in its own namespace (open file descriptors)."""
    message = ifinfmsg()
    message["attrs"] = [
        *_end_attributes(link.a, link.mtu, a_namespace),
        (
            "IFLA_LINKINFO",
            {
                "attrs": [
                    ("IFLA_INFO_KIND", "veth"),
                    (
                        "IFLA_INFO_DATA",
                        {"attrs": [("VETH_INFO_PEER", {"attrs": _end_attributes(link.b, link.mtu, b_namespace)})]},
                    ),
                ]
            },
        ),
    ]
    return encode(f"link {link.name}", message, RTM_NEWLINK, create=True)


def _end_attributes(end: End, mtu: int, namespace: int) -> list[tuple[str, object]]:
    return [
        ("IFLA_IFNAME", end.ifname),
        ("IFLA_ADDRESS", end.mac),
        ("IFLA_MTU", mtu),
        ("IFLA_NET_NS_FD", namespace),
    ]


def bridge(ifname: str) -> Request:
    """A bridge without spanning tree; ports forward at once."""
    message = ifinfmsg()
    message["attrs"] = [
        ("IFLA_IFNAME", ifname),
        (
            "IFLA_LINKINFO",
            {
                "attrs": [
                    ("IFLA_INFO_KIND", "bridge"),
                    ("IFLA_INFO_DATA", {"attrs": [("IFLA_BR_STP_STATE", 0), ("IFLA_BR_FORWARD_DELAY", 0)]}),
                ]
            },
        ),
    ]
    return encode(f"bridge {ifname}", message, RTM_NEWLINK, create=True)


def up(index: int, interface: str, *, master: int | None = None) -> Request:
    """Set an interface up, and into a bridge if ``master`` is given."""
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = message["change"] = _IFF_UP
    if master is not None:
        message["attrs"] = [("IFLA_MASTER", master)]
    return encode(f"interface {interface} up", message, RTM_NEWLINK)


def down(index: int, interface: str) -> Request:
    """Set an interface down. Its static routes go with it."""
    message = ifinfmsg()
    message["index"] = index
    message["flags"], message["change"] = 0, _IFF_UP
    return encode(f"interface {interface} down", message, RTM_NEWLINK)


def no_link(index: int, interface: str) -> Request:
    """An interface away, and with it the far end of its link."""
    message = ifinfmsg()
    message["index"] = index
    return encode(f"removal of {interface}", message, RTM_DELLINK)


def mtu(index: int, interface: str, size: int) -> Request:
    """Largest packet of an interface, bytes."""
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_MTU", size)]
    return encode(f"MTU {size} of {interface}", message, RTM_NEWLINK)


def altname(index: int, interface: str) -> Request:
    """The readable name beside a kernel name that had to be shortened."""
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_PROP_LIST", {"attrs": [("IFLA_ALT_IFNAME", interface)]})]
    return encode(f"alternative name {interface}", message, RTM_NEWLINKPROP, create=True)


def address(index: int, interface: Interface, ifname: str) -> Request:
    """An address with its prefix; without duplicate address detection, since the plan has none twice."""
    message = ifaddrmsg()
    message["family"] = _family(interface.version)
    message["prefixlen"] = interface.network.prefixlen
    message["index"] = index
    message["flags"] = _NODAD if interface.version == 6 else 0
    message["attrs"] = [("IFA_LOCAL", str(interface.ip)), ("IFA_ADDRESS", str(interface.ip))]
    return encode(f"address {interface} on {ifname}", message, RTM_NEWADDR, create=True)


def neighbour(index: int, entry: Neighbour) -> Request:
    """A permanent neighbour entry. It takes the place of one that the kernel has learnt since the link is up."""
    message = ndmsg()
    message["family"] = _family(entry.address.version)
    message["ifindex"] = index
    message["state"] = _NUD_PERMANENT
    message["attrs"] = [("NDA_DST", str(entry.address)), ("NDA_LLADDR", entry.mac)]
    return encode(f"neighbour {entry.address} on {entry.ifname}", message, RTM_NEWNEIGH, replace=True)


def route(index: int, entry: Route) -> Request:
    """A unicast route."""
    message = rtmsg()
    message["family"] = _family(entry.destination.version)
    message["dst_len"] = entry.destination.prefixlen
    message["table"], message["proto"] = _short_table(entry.table), _PROTO_STATIC
    message["scope"], message["type"] = _SCOPE_UNIVERSE, _UNICAST
    attrs: list[tuple[str, object]] = [("RTA_GATEWAY", str(entry.via)), ("RTA_OIF", index)]
    if entry.destination.prefixlen:
        attrs.insert(0, ("RTA_DST", str(entry.destination.network_address)))
    where = ""
    if entry.table != MAIN_TABLE:
        attrs.append(("RTA_TABLE", entry.table))
        where = f" in table {entry.table}"
    message["attrs"] = attrs
    return encode(f"route {entry.destination} via {entry.via}{where}", message, RTM_NEWROUTE, create=True)


def _short_table(table: int) -> int:
    """The header's one byte for a table; larger numbers stand in an attribute only."""
    return table if table < 256 else _TABLE_IN_ATTRIBUTE


def rule(entry: Rule) -> Request:
    """A policy routing rule, marked as ours by its protocol."""
    message = fibmsg()
    message["family"] = _family(entry.family)
    message["table"], message["action"] = _short_table(entry.table), _TO_TABLE
    attrs: list[tuple[str, object]] = [
        ("FRA_PRIORITY", entry.priority),
        ("FRA_TABLE", entry.table),
        ("FRA_PROTOCOL", _PROTO_STATIC),
    ]
    if entry.iif is not None:
        attrs.append(("FRA_IIFNAME", entry.iif))
    for key, length, network in (("FRA_SRC", "src_len", entry.source), ("FRA_DST", "dst_len", entry.destination)):
        if network is not None:
            message[length] = network.prefixlen
            attrs.append((key, str(network.network_address)))
    if entry.fwmark is not None:
        attrs += [("FRA_FWMARK", entry.fwmark), ("FRA_FWMASK", 0xFFFFFFFF)]
    message["attrs"] = attrs
    return encode(rule_text(entry), message, RTM_NEWRULE, create=True)


def rule_text(entry: Rule) -> str:
    """A rule in the words of ip-rule(8)."""
    parts = [f"rule {entry.priority}: from {entry.source or 'all'}"]
    parts.append(f"to {entry.destination}" if entry.destination else "")
    parts.append(f"iif {entry.iif}" if entry.iif else "")
    parts.append(f"fwmark {entry.fwmark:#x}" if entry.fwmark is not None else "")
    return " ".join([*(part for part in parts if part), f"lookup {entry.table}"])


def tbf(index: int, rate_bps: int, mtu: int, ifname: str) -> Request:
    """A token bucket at the interface's egress (tc-tbf(8)): 1 ms of the rate as burst, 50 ms of queue."""
    message = tcmsg()
    message["index"] = index
    message["handle"], message["parent"] = QDISC_HANDLE, _ROOT
    burst = max(2 * mtu, rate_bps // 8 // 1000)
    options = sched_tbf.get_parameters({"rate": rate_bps // 8, "burst": burst, "latency": "50ms"})
    message["attrs"] = [("TCA_KIND", "tbf"), ("TCA_OPTIONS", options)]
    return encode(f"rate {rate_bps} bit/s on {ifname}", message, RTM_NEWQDISC, create=True)
