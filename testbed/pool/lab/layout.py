"""What a pool looks like in a lab: its nodes by name, its addresses, its ports. Pure.

Clients reach the dispatcher, a router; each server hangs on it by a link of its own. Agents, the store and the
dispatcher's control are on a management network that the dispatcher does not forward to or from, so that a server that
has been taken over reaches none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from testbed.pool.lab.dataplane import Service, furnish
from testbed.pool.spec import PoolSpec, server_names

if TYPE_CHECKING:
    from testbed.errors import Path
    from testbed.plan.builder import PlanBuilder
    from testbed.plan.types import Address, End, Plan

BROADCAST_PORT, STORE_PORT, CONTROL_PORT = 7400, 7401, 7402
"""UDP between agents; TCP to the store and to the dispatcher's control. On the management network only."""
MANAGEMENT, STUB = "mgmt", "service"
"""Interfaces to the management network, and the dispatcher's to the subnet of the service address."""
PORTS = {"web": (("tcp", 80),), "dns": (("udp", 53), ("tcp", 53))}

# What comes from elsewhere may not reach the management network, nor the control of the dispatcher by another address.
_GUARD = f"""table inet testbed_pool_guard {{
  chain forward {{
    type filter hook forward priority filter ;
    iifname "{MANAGEMENT}" drop
    oifname "{MANAGEMENT}" drop
  }}
  chain input {{
    type filter hook input priority filter ;
    iifname != {{ "lo", "{MANAGEMENT}" }} meta l4proto {{ tcp, udp }} th dport {BROADCAST_PORT}-{CONTROL_PORT} drop
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of one pool."""

    pool: str
    servers: tuple[str, ...]

    @classmethod
    def of(cls, pool: str, spec: PoolSpec) -> Layout:
        """From the section of the topology."""
        return cls(pool, tuple(server_names(pool, spec)))

    @property
    def dispatcher(self) -> str:
        """The router that leads clients to the server in service."""
        return self.pool

    @property
    def store(self) -> str:
        """Where the shared storage is."""
        return f"{self.pool}-store"

    @property
    def controller(self) -> str:
        """Where the central controller is, in a pool that has one."""
        return f"{self.pool}-control"

    @property
    def management(self) -> str:
        """The switch of the management network."""
        return f"{self.pool}-mgmt"

    @property
    def stub(self) -> str:
        """The switch that makes the subnet of the service address a part of the lab's network."""
        return f"{self.pool}-service"

    def agent(self, server: str) -> str:
        """Where the agent of a server is: outside of it."""
        return f"{server}-agent"


def service_of(pool: str, spec: PoolSpec, plan: Plan) -> Service:
    """The service address and its ports, of a pool in a plan."""
    layout = Layout.of(pool, spec)
    return Service(plan.node(layout.servers[0]).loopback[0].ip, PORTS[spec.service])


def management_end(plan: Plan, node: str) -> End:
    """A node's interface on the management network. KeyError if it is not on one."""
    for link in plan.links_of(node):
        if (end := link.end(node)).interface == MANAGEMENT:
            return end
    raise KeyError(f"{node} is not on a management network")


def expand(build: PlanBuilder, number: int, pool: str, spec: PoolSpec) -> None:
    """Add the nodes of the ``number``-th pool of a topology, counted from 1."""
    path: Path = ("pool", pool)
    layout = Layout.of(pool, spec)
    router = spec.attach or build.core()
    build.node(layout.dispatcher, path, kind="router", subsystem="pool", role="dispatcher")
    build.attach(layout.dispatcher, router, (*path, "attach") if spec.attach else path)
    address, own, subnet = _addresses(number, ":" in build.defaults.pool)
    build.node(layout.stub, path, kind="switch", subsystem="pool", role="service address", subnet=subnet)
    build.link(f"{layout.dispatcher}:{STUB}", layout.stub, path, addresses=(own, None))
    build.node(layout.management, path, kind="switch", subsystem="pool", role="management")
    build.link(f"{layout.dispatcher}:{MANAGEMENT}", layout.management, path, routed=False)
    for server in layout.servers:
        build.node(server, path, runtime=spec.runtime, image=spec.image, subsystem="pool", role="server")
        build.attach(server, layout.dispatcher, path, spec.link)
        _outside(build, layout, layout.agent(server), "agent")
    _outside(build, layout, layout.store, "store")
    if spec.scheduler == "central":
        _outside(build, layout, layout.controller, "controller")
    furnish(build, layout.dispatcher, layout.servers, Service(address, PORTS[spec.service]))
    build.nft(layout.dispatcher, _GUARD)


def _outside(build: PlanBuilder, layout: Layout, node: str, role: str) -> None:
    """A node of the testbed's own programs. As a router it is never made a container, whatever the user asks for."""
    build.node(node, ("pool", layout.pool), kind="router", subsystem="pool", role=role)
    build.link(f"{node}:{MANAGEMENT}", layout.management, ("pool", layout.pool), routed=False)


def _addresses(number: int, version_6: bool) -> tuple[Address, str, str]:
    """Service address, the dispatcher's address beside it, and their subnet, from the ranges of RFC 2544 and 4193."""
    if version_6:
        subnet = f"fd99:{number:x}::"
        return ip_address(f"{subnet}1"), f"{subnet}6/64", f"{subnet}/64"
    subnet = f"198.18.{number}."
    return ip_address(f"{subnet}1"), f"{subnet}6/29", f"{subnet}0/29"
