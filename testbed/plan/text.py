"""A plan as text for people. What programs read is its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.model.quantities import format_duration_us, format_fraction, format_rate_bps, format_size_bytes
from testbed.plan.types import End, Impairment, Link, Node, Plan

MOST_ADDRESSES = 4
"""Of one node in the list of nodes; the list of links has all of them."""


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's' if not noun.endswith('ch') else 'es'}"


def plan_summary(plan: Plan) -> str:
    """Name, counts and digest in one line."""
    kinds = [(kind, sum(node.kind == kind for node in plan.nodes)) for kind in ("host", "router", "switch")]
    parts = ", ".join(counted(number, kind) for kind, number in kinds if number)
    return f"{plan.name}: {counted(len(plan.nodes), 'node')} ({parts}), {counted(len(plan.links), 'link')}"


def plan_text(plan: Plan, *, routes: bool = False) -> str:
    """Nodes and links in columns; with ``routes`` also every node's routing table."""
    parts = [plan_summary(plan)]
    if plan.description:
        parts.append(plan.description)
    parts.append(f"seed {plan.seed}, digest {plan.digest()[:16]}")
    parts += [
        "",
        *_table(("node", "kind", "runtime", "part of", "addresses"), [_node_row(plan, n) for n in plan.nodes]),
    ]
    if plan.links:
        header = ("link", "addresses", "to", "addresses", "mtu", "traffic")
        parts += ["", *_table(header, [_link_row(link) for link in plan.links])]
    services = [(node, service) for node in plan.nodes for service in node.services]
    if services:
        rows = [(node.name, item.name, " ".join(item.argv), "root" if item.root else "") for node, item in services]
        parts += ["", *_table(("node", "service", "command", "user"), rows)]
    if routes:
        parts += ["", *_table(("node", "destination", "via", "interface"), list(_route_rows(plan)))]
    return "\n".join(parts)


def impairment_text(impairment: Impairment) -> str:
    """``delay 10ms ±2ms, loss 0.5%, rate 20mbit``; empty if nothing is done to packets."""
    parts = []
    if impairment.delay_us or impairment.jitter_us:
        jitter = f" ±{format_duration_us(impairment.jitter_us)}" if impairment.jitter_us else ""
        order = " reordering" if impairment.reorder and impairment.jitter_us else ""
        parts.append(f"delay {format_duration_us(impairment.delay_us)}{jitter}{order}")
    for name in ("loss", "duplicate", "corrupt"):
        fraction = getattr(impairment, name)
        if fraction:
            burst = impairment.loss_burst if name == "loss" else None
            parts.append(f"{name} {format_fraction(fraction)}" + (f" in bursts of {burst:g}" if burst else ""))
    if impairment.rate_bps is not None:
        parts.append(f"rate {format_rate_bps(impairment.rate_bps)}")
    return ", ".join(parts)


def traffic_text(link: Link) -> str:
    """The impairments of both directions; said once where they are alike."""
    there, back = impairment_text(link.forward), impairment_text(link.backward)
    if there == back:
        return f"each way: {there}" if there else ""
    return f"there: {there or 'as it comes'}; back: {back or 'as it comes'}"


def part_of(node: Node) -> str:
    """Subsystem and role, such as ``tor authority``."""
    return " ".join(part for part in (node.subsystem, node.role) if part)


def limits_text(node: Node) -> str:
    """Image and limits of a container; empty where none is set."""
    parts = [node.image or ""]
    parts.append(f"memory {format_size_bytes(node.memory_bytes)}" if node.memory_bytes is not None else "")
    parts.append(f"pids {node.pids}" if node.pids is not None else "")
    return ", ".join(part for part in parts if part)


def _node_row(plan: Plan, node: Node) -> tuple[str, ...]:
    addresses = [str(address.ip) for link in plan.links_of(node.name) for address in link.end(node.name).addresses]
    shown = " ".join(addresses[:MOST_ADDRESSES])
    if len(addresses) > MOST_ADDRESSES:
        shown += f" and {len(addresses) - MOST_ADDRESSES} more"
    limits = limits_text(node)
    return node.name, node.kind, f"{node.runtime} ({limits})" if limits else node.runtime, part_of(node), shown


def _link_row(link: Link) -> tuple[str, ...]:
    return (*_end_cells(link.a), *_end_cells(link.b), str(link.mtu), traffic_text(link))


def _end_cells(end: End) -> tuple[str, str]:
    kernel = f" ({end.ifname})" if end.ifname != end.interface else ""
    return f"{end.node}:{end.interface}{kernel}", " ".join(str(address) for address in end.addresses) or "-"


def _route_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for node in plan.nodes:
        readable = {link.end(node.name).ifname: link.end(node.name).interface for link in plan.links_of(node.name)}
        for route in node.routes:
            destination = "default" if route.destination.prefixlen == 0 else str(route.destination)
            yield node.name, destination, str(route.via), readable[route.ifname]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Left-aligned columns two spaces apart; columns that are empty in every row are left out."""
    used = [index for index in range(len(header)) if any(row[index] for row in rows)]
    cells = [[row[index] for index in used] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(used))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
