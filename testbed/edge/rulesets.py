"""The nftables rulesets of the campus' routers in mode ``redirect``. Pure text. One table a router, ``ip edge``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from testbed.edge.plan import names
from testbed.edge.plan.world import MARK, Network, PublicAddress, Site, World

TABLE = "edge"
FROM_EDUCATION = "cernet"
"""The inner router's interface to the education network's border router, whatever that network is called."""
DIRECT = 0x1
"""Mark of connections that the inner router sends on to the sites themselves (variant ``pbr``)."""


def sites_set(world: World) -> str:
    """Addresses and ports of the accelerated sites."""
    return _block("set sites", "ipv4_addr . inet_service", (f"{s.address} . {s.port}" for s in world.sites))


def education_border(world: World) -> str:
    """Step one: what comes from outside of the education network for a site is marked for the inner router."""
    prefixes = map(str, world.education.prefixes)
    return f"""\
table ip {TABLE} {{
{sites_set(world)}
{_block("set insiders", "ipv4_addr", prefixes, "flags interval;")}
  chain divert {{
    type filter hook prerouting priority mangle;
    iifname "{names.UPLINK}" ip daddr . tcp dport @sites ip saddr != @insiders meta mark set {MARK:#x};
  }}
}}
"""


def provider_border(publics: Mapping[PublicAddress, Site]) -> str:
    """Static translation of public addresses and ports to the sites; what starts inside leaves with the border's own
    address."""
    arrows = (f"{address} . {port} : {s.address} . {s.port}" for (address, port), s in publics.items())
    pair = "ipv4_addr . inet_service"
    return f"""\
table ip {TABLE} {{
{_block("map publics", f"{pair} : {pair}", arrows)}
  chain inward {{
    type nat hook prerouting priority dstnat;
    iifname "{names.UPLINK}" dnat ip to ip daddr . tcp dport map @publics;
  }}
  chain outward {{
    type nat hook postrouting priority srcnat;
    oifname "{names.UPLINK}" masquerade;
  }}
}}
"""


def campus_router(world: World) -> str:
    """Replies leave by the border that their connection came in by: its mark is that border's number."""
    return f"""\
table ip {TABLE} {{
  chain pin {{
    type filter hook prerouting priority mangle;
{"".join(f'    iifname "{isp.name}" ct state new ct mark set {isp.number};{_NEW_LINE}' for isp in world.isps)}\
    iifname {{ {", ".join(f'"{isp.name}"' for isp in world.isps)} }} accept;
    ct mark 1-{len(world.isps)} meta mark set ct mark;
  }}
}}
"""


def inner_router(world: World) -> str:
    """Step two, variant ``dnat``: by source address to the listener of the network that the user is in."""
    arrows = (f"{prefix} : goto {chain_of(isp.name)}" for isp in world.isps for prefix in isp.prefixes)
    chains = "".join(f"  chain {chain_of(isp.name)} {{\n    {hand_over(isp)};\n  }}\n" for isp in world.isps)
    return f"""\
table ip {TABLE} {{
{sites_set(world)}
{chains}{_block("map networks", "ipv4_addr : verdict", arrows, "flags interval;")}
  chain classify {{
    type nat hook prerouting priority dstnat;
    iifname "{FROM_EDUCATION}" ip daddr . tcp dport @sites ip saddr vmap @networks;
  }}
}}
"""


def inner_router_by_routes() -> str:
    """Step two, variant ``pbr``: a connection that was once sent on to the site itself stays with it."""
    return f"""\
table ip {TABLE} {{
  chain keep {{
    type filter hook prerouting priority mangle;
    ct mark {DIRECT:#x} meta mark set ct mark;
  }}
  chain note {{
    type filter hook postrouting priority mangle;
    oifname "{FROM_EDUCATION}" ct state new ct mark set {DIRECT:#x};
  }}
}}
"""


def redirector_by_routes(world: World) -> str:
    """Variant ``pbr``: packets still have a site's address, and go to the address of the interface they came in by."""
    return f"""\
table ip {TABLE} {{
{sites_set(world)}
  chain take {{
    type nat hook prerouting priority dstnat;
    ip daddr . tcp dport @sites redirect;
  }}
}}
"""


def chain_of(isp: str) -> str:
    """The inner router's chain for users of a provider."""
    return f"isp_{isp.replace('-', '_')}"


def hand_over(isp: Network) -> str:
    """The rule of that chain."""
    return f"dnat ip to {isp.listener.ip}"


_NEW_LINE = "\n"


def _block(what: str, kind: str, elements: Iterable[str], flags: str = "") -> str:
    """A set or map; the kernel takes none of no elements as ``elements``."""
    listed = ", ".join(elements)
    content = f" elements = {{ {listed} }};" if listed else ""
    return f"  {what} {{ type {kind}; {flags}{content} }}"
