"""A plan as text for people. What programs read is its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.model.quantities import format_duration_us, format_fraction, format_rate_bps, format_size_bytes
from testbed.plan.types import MAIN_TABLE, End, Impairment, Link, Node, Plan, Rule

MOST_ADDRESSES = 4
"""Of one node in the list of nodes; the list of links has all of them."""


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's' if not noun.endswith('ch') else 'es'}"


def plan_summary(plan: Plan) -> str:
    """Name and counts in one line."""
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
    rules = [(node.name, *rule_cells(plan, node, rule)) for node in plan.nodes for rule in node.rules]
    if rules:
        parts += ["", *_table(("node", "rule", "packets", "table"), rules)]
    extras = list(_extra_rows(plan))
    if extras:
        parts += ["", *_table(("node", "further", "what"), extras)]
    if routes:
        parts += ["", *_table(("node", "destination", "via", "interface", "table"), list(_route_rows(plan)))]
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
    addresses += [f"{address.ip} (lo)" for address in node.loopback]
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
            table = "" if route.table == MAIN_TABLE else str(route.table)
            yield node.name, destination, str(route.via), readable[route.ifname], table


def rule_cells(plan: Plan, node: Node, rule: Rule) -> tuple[str, str, str]:
    """Priority, the packets that a rule is about, and the table that routes them."""
    readable = {link.end(node.name).ifname: link.end(node.name).interface for link in plan.links_of(node.name)}
    parts = [f"from {rule.source}" if rule.source else "", f"to {rule.destination}" if rule.destination else ""]
    parts.append(f"in by {readable.get(rule.iif, rule.iif)}" if rule.iif else "")
    parts.append(f"marked {rule.fwmark:#x}" if rule.fwmark is not None else "")
    return str(rule.priority), " ".join(part for part in parts if part) or "all", str(rule.table)


def _extra_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Kernel settings, rulesets and files, each in a line; all of a ruleset or file is in the JSON."""
    for node in plan.nodes:
        for key, value in node.sysctls.items():
            yield node.name, "sysctl", f"{key} = {value}"
        if node.nft:
            yield node.name, "nft", f"ruleset of {counted(len(node.nft.splitlines()), 'line')}"
        for file in node.files:
            yield node.name, "file", f"{file.path}, {counted(len(file.text.splitlines()), 'line')}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Left-aligned columns two spaces apart; columns that are empty in every row are left out."""
    used = [index for index in range(len(header)) if any(row[index] for row in rows)]
    cells = [[row[index] for index in used] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(used))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
