"""``probe`` commands about one node: what its kernel and its processes say at this moment."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli import complete
from testbed.cli.lab import LabName, find_lab
from testbed.cli.output import print_json, show_blocks

Node = Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.", autocompletion=complete.nodes)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value.")]


def counters(node: Node, as_json: AsJson = False, name: LabName = None) -> None:
    """The interface counters of a node."""
    from testbed.measure.probes.counters import COLUMNS
    from testbed.measure.probes.counters import counters as read
    from testbed.report.blocks import Table

    found = read(find_lab(name), node)
    if as_json:
        print_json(found)
        return
    rows = [(interface, *(str(getattr(values, key)) for key in COLUMNS)) for interface, values in found.items()]
    show_blocks([Table(("interface", *COLUMNS), rows)])


def conntrack(node: Node, as_json: AsJson = False, name: LabName = None) -> None:
    """The connections that a node's kernel tracks."""
    from testbed.measure.probes.conntrack import conntrack as read
    from testbed.report.blocks import Table

    found = read(find_lab(name), node)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one.protocol,
            one.state,
            _end(one.original.source, one.original.source_port),
            _end(one.original.target, one.original.target_port),
            _end(one.reply.source, one.reply.source_port) if one.translated else "",
            _end(one.reply.target, one.reply.target_port) if one.translated else "",
        )
        for one in found
    ]
    head = ("protocol", "state", "from", "to", "answered by", "answered to")
    show_blocks([Table(head, rows, text=range(len(head)))])


def usage(node: Node, as_json: AsJson = False, name: LabName = None) -> None:
    """CPU time and memory of a node's processes."""
    from testbed.measure.probes.usage import usage as read

    found = read(find_lab(name), node)
    if as_json:
        print_json(found)
    else:
        memory = f"{found.rss_bytes / 2**20:.1f} MiB"
        print(f"{found.processes} processes, {found.cpu_seconds:.2f} s of CPU time, {memory} of memory")


def _end(address: str, port: int | None) -> str:
    return address if port is None else f"{address}:{port}"
