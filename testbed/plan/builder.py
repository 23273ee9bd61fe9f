"""Collects nodes and links from the plain part of a topology and from subsystems, and makes the plan of them.

Mistakes do not raise: each becomes a ``Problem`` at the path it comes from, so that all are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from testbed.errors import Path, Problem, halves
from testbed.model.topology import AttachmentSpec, DefaultsSpec
from testbed.plan.addresses import Allocator, parse_network
from testbed.plan.addressing import Pair, assign_addresses
from testbed.plan.draft import EndDraft, LinkDraft, NodeDraft, RouteDraft
from testbed.plan.impairments import impairment_of, impossible, jitter_place
from testbed.plan.interfaces import resolve_links
from testbed.plan.islands import disconnected
from testbed.plan.names import mac_address
from testbed.plan.nodes import CORE, node_problems
from testbed.plan.policy import PolicyVerbs, is_main
from testbed.plan.routes import Attachment, Layer3, compute_routes, static_routes
from testbed.plan.types import (
    End,
    Impairment,
    Kind,
    Link,
    Neighbour,
    Network,
    Node,
    Plan,
    Route,
    RuntimeName,
    Service,
)


class PlanBuilder(PolicyVerbs):
    """Mutable while a topology is expanded; ``build`` makes the frozen plan."""

    def __init__(self, name: str, seed: int, description: str, defaults: DefaultsSpec) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self.defaults = defaults
        self._name, self._seed, self._description = name, seed, description
        self._nodes: dict[str, NodeDraft] = {}
        self._links: list[LinkDraft] = []
        self._sections: dict[str, dict[str, Any]] = {}

    def problem(self, path: Path, message: str, remedy: str = "") -> None:
        """Record a mistake of the user."""
        self._report(Problem(path, message, remedy))

    def _report(self, problem: Problem) -> None:
        self.problems.append(problem)

    def node(
        self,
        name: str,
        path: Path,
        *,
        kind: Kind = "host",
        runtime: RuntimeName | None = None,
        image: str | None = None,
        subsystem: str = "",
        role: str = "",
        memory_bytes: int | None = None,
        pids: int | None = None,
        services: Sequence[Service] = (),
        subnet: str | None = None,
        routes: Sequence[tuple[str, str, Path]] = (),
    ) -> None:
        """Add a node. ``routes`` are (destination or ``default``, next hop, path); ``subnet`` is a switch's prefix.

        Without ``runtime`` a host gets the topology's default one; routers and switches are always processes.
        """
        chosen = runtime or (self.defaults.runtime if kind == "host" else "process")
        node = Node(
            name=name,
            kind=kind,
            runtime=chosen,
            image=image,
            subsystem=subsystem,
            role=role,
            memory_bytes=memory_bytes,
            pids=pids,
            services=tuple(services),
        )
        draft = NodeDraft(node, path, subnet, [RouteDraft(*route) for route in routes])
        if name in self._nodes:
            self._twice(draft, self._nodes[name])
        else:
            self._nodes[name] = draft
            self.problems += node_problems(draft)

    def core(self) -> str:
        """The name of the core router, which is added when first asked for."""
        if CORE not in self._nodes:
            self.node(CORE, (), kind="router", role="core")
        return CORE

    def link(
        self,
        a: str,
        b: str,
        path: Path,
        *,
        forward: Impairment | None = None,
        backward: Impairment | None = None,
        mtu: int = 1500,
        addresses: tuple[str | None, str | None] | None = None,
        impaired_at: Path | None = None,
        routed: bool = True,
    ) -> None:
        """Join two endpoints, each ``node`` or ``node:interface``. Addresses are allocated unless given.

        The nodes may be added later. An address is given for each end, with prefix length; None for one at a switch.
        ``impaired_at`` is where the impairments stand, if not at ``path``. A link that is not ``routed`` is not there
        for computed routes: only routes that are given lead over it and to its subnet.
        """
        ends = []
        for index, endpoint in enumerate((a, b)):
            name, _, interface = endpoint.partition(":")
            if name == CORE:
                self.core()
            ends.append(EndDraft(name, interface, (*path, "endpoints", index)))
        there, back = forward or Impairment(), backward or Impairment()
        self._links.append(LinkDraft((ends[0], ends[1]), path, there, back, mtu, addresses, routed))
        self.problems += impossible((there, back), path, jitter_at=impaired_at or path)

    def attach(self, node: str, router: str, path: Path, spec: AttachmentSpec | None = None) -> None:
        """Hang ``node`` on ``router`` (usually ``core()``) by one link. ``forward`` is from the node.

        ``path`` is the part of the topology that asks for it, or its key ``attach``; ``spec`` stands at its key
        ``link``.
        """
        target = self._nodes.get(router)
        if target is not None and target.kind == "host":
            self.problem(path, f"{router!r} is a host, which forwards nothing", "attach to a router or a switch")
        self.link(
            node,
            router,
            path,
            forward=impairment_of(self.defaults.link, spec, spec and spec.forward),
            backward=impairment_of(self.defaults.link, spec, spec and spec.backward),
            mtu=spec.mtu if spec and "mtu" in spec.model_fields_set else self.defaults.link.mtu,
            impaired_at=jitter_place(spec, (*(path[:-1] if path[-1:] == ("attach",) else path), "link")),
        )

    def section(self, name: str, data: dict[str, Any]) -> None:
        """Store what a subsystem needs at run time. It must be plain JSON; ValueError or TypeError if it is not."""
        self._sections[name] = json.loads(json.dumps(data, allow_nan=False))

    def node_names(self) -> list[str]:
        """Names so far, in order."""
        return list(self._nodes)

    def build(self) -> Plan:
        """The plan. Meaningful only while ``problems`` is empty afterwards."""
        links = resolve_links(self._nodes, self._links, self._report)
        if not self._nodes:
            self._report(Problem((), "there is no node", "add one under `nodes`", assumes="nodes"))
        elif len(links) == len(self._links):
            self.problems += disconnected(self._nodes, links)
        loopback = [address for _, address in self._policy.loopback_addresses()]
        pairs = assign_addresses(self._nodes, links, Allocator(self._pool()), self._report, loopback)
        finished = [_finished(link, pair) for link, pair in zip(links, pairs, strict=True)]
        kinds = {name: draft.kind for name, draft in self._nodes.items()}
        graph = open_to_all = Layer3.of(kinds, _attachments(finished))
        if not all(link.routed for link in links):
            routed = [link for link, draft in zip(finished, links, strict=True) if draft.routed]
            open_to_all = Layer3.of(kinds, _attachments(routed))
        computed, neighbours = compute_routes(open_to_all), _neighbours(finished)
        # with a link missing by somebody's mistake a wish may not be grantable, which is no news
        sound = not self.problems
        given = self._policy.routes_of(finished) if sound else {}
        rules = self._policy.rules_of(finished) if sound else {}
        special = self._policy.nodes()
        nodes = []
        for name, draft in self._nodes.items():
            fixed = [*static_routes(draft, graph, self._report), *given.get(name, ())]
            update: dict[str, Any] = {
                "routes": _merged(fixed, computed.get(name, [])),
                "neighbours": tuple(neighbours.get(name, ())),
            }
            if name in special:
                update |= self._policy.update(name, draft.node.services)
                update["rules"] = tuple(rules.get(name, ()))
            nodes.append(draft.node.model_copy(update=update))
        return Plan(
            name=self._name,
            seed=self._seed,
            description=self._description,
            nodes=tuple(nodes),
            links=tuple(finished),
            sections=self._sections,
        )

    def _pool(self) -> Network:
        try:
            return parse_network(self.defaults.pool)
        except ValueError as error:
            self.problem(("defaults", "pool"), *halves(error))
            return ip_network("10.0.0.0/8")

    def _twice(self, draft: NodeDraft, earlier: NodeDraft) -> None:
        name = draft.node.name
        if name == CORE and not earlier.path:
            # a subsystem or a link asked for the router before the node of this name was added
            self._nodes[name] = draft
            self.problems += node_problems(draft)
            return
        message = f"there are two nodes {name!r}: one of {earlier.owner}, one of {draft.owner}"
        self._report(Problem(earlier.path, message, "rename one of the two", at_key=True, other=draft.path))


def _finished(link: LinkDraft, pair: Pair) -> Link:
    ends = [
        End(
            node=end.node,
            interface=end.interface,
            ifname=end.ifname,
            mac=mac_address(end.node, end.interface),
            addresses=() if address is None else (address,),
        )
        for end, address in zip(link.ends, pair, strict=True)
    ]
    return Link(a=ends[0], b=ends[1], mtu=link.mtu, forward=link.forward, backward=link.backward)


def _attachments(links: Sequence[Link]) -> list[Attachment]:
    return [
        Attachment(end.node, end.ifname, address.ip, address.network)
        for link in links
        for end in (link.a, link.b)
        for address in end.addresses
    ]


def _neighbours(links: Sequence[Link]) -> dict[str, list[Neighbour]]:
    """Permanent entries for both ends of every link that has addresses on both."""
    found: dict[str, list[Neighbour]] = {}
    for link in links:
        for end, peer in ((link.a, link.b), (link.b, link.a)):
            if end.addresses:
                found.setdefault(end.node, []).extend(
                    Neighbour(address=address.ip, mac=peer.mac, ifname=end.ifname) for address in peer.addresses
                )
    return found


def _merged(static: Sequence[Route], computed: Sequence[Route]) -> tuple[Route, ...]:
    """Static routes, and the computed ones to other destinations."""
    fixed = {route.destination for route in static if is_main(route)}
    return (*static, *(route for route in computed if route.destination not in fixed))
