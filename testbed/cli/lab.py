"""Commands that make, use and remove labs: ``up``, ``down``, ``ps``, ``exec``, ``shell``, ``logs``."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import complete
from testbed.errors import TestbedError, halves

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

LabName = Annotated[
    str | None,
    typer.Option("--name", "-n", help="The lab; needed only while several are up.", autocompletion=complete.labs),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(up)
    app.command()(down)
    app.command()(ps)
    app.command("exec", context_settings={"ignore_unknown_options": True})(exec_)
    app.command()(shell)
    app.command()(logs)


def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The topology.")],
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the lab; default: the topology's.")] = None,
    runtime: Annotated[str | None, typer.Option(help="`process` or `container` for every node.")] = None,
    impair: Annotated[str | None, typer.Option(help="`netem` or `wire` for links with delay, jitter, loss.")] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Reuse keys and consensus of the last start, if valid.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="If it does not come up, leave what there is of it.")] = False,
) -> None:
    """Start a lab from a topology. It stays up until `testbed down`."""
    from testbed.cli.progress import shown
    from testbed.lab import up as starting
    from testbed.net import impair as impairing
    from testbed.plan.load import load_topology
    from testbed.plan.text import counted
    from testbed.runtime import runtimes

    if name is not None:
        _check_name(name)
    override, engine = runtimes.check_name(runtime), impairing.check_name(impair)
    _, plan = load_topology(file)
    before = time.monotonic()
    with shown() as progress:
        lab = starting.up(
            plan,
            name,
            runtime=override,
            progress=progress,
            topology=str(file.resolve()),
            impair=engine,
            warm=warm,
            keep=keep,
        )
    seconds = time.monotonic() - before
    size = f"{counted(len(plan.nodes), 'node')}, {counted(len(plan.links), 'link')}"
    print(f"lab {lab.name} is up: {size}, {seconds:.1f} s")


def down(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Labs to take down.", autocompletion=complete.labs)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Take down every lab.")] = False,
) -> None:
    """Take labs down.

    All that belongs to them is removed. Needs neither the topology file nor a clean earlier exit.
    """
    from testbed.lab import down as stopping

    if everything == bool(names):
        raise TestbedError("say which lab to take down", remedy="name it, or give --all")
    _need_root()
    done = stopping.down_all() if everything else names or []
    if not everything:
        for name in done:
            stopping.down(name)
    print("\n".join(f"lab {name} is down" for name in done) or "no lab is up")


def ps(as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False) -> None:
    """List the labs of this machine."""
    from testbed.lab.down import reap, running
    from testbed.lab.state import Folder, state_root

    if os.geteuid() == 0:
        reap()
    elif (labs := state_root() / "labs").exists() and not os.access(labs, os.R_OK):
        _need_root()
    rows = []
    for record in running():
        try:
            plan = json.loads(Folder(record.id).plan.read_text())
        except (OSError, ValueError):
            plan = {"nodes": [], "links": []}
        rows.append(
            {
                "name": record.name,
                "id": record.id,
                "status": record.status if record.alive() or record.status != "up" else "dead",
                "nodes": len(plan["nodes"]),
                "links": len(plan["links"]),
                "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started)),
                "topology": record.topology,
                "folder": str(Folder(record.id).path),
            }
        )
    if as_json:
        print(json.dumps(rows, indent=1))
    elif not rows:
        print("no lab is up")
    else:
        print_table([{key: value for key, value in row.items() if key != "folder"} for row in rows])


def exec_(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.", autocompletion=complete.nodes)],
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="Program and arguments, after --; no shell.")],
    name: LabName = None,
    user: Annotated[bool, typer.Option("--user", help="As the unprivileged user rather than as root.")] = False,
) -> None:
    """Run a command in a node; its exit status is the result."""
    lab = find_lab(name)
    raise typer.Exit(subprocess.run(lab.command(node, command, root=not user), check=False).returncode)


def shell(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.", autocompletion=complete.nodes)],
    name: LabName = None,
) -> None:
    """Open a shell in a node, as root."""
    lab = find_lab(name)
    container = lab.node(node).runtime == "container"
    program = "/bin/sh" if container else os.environ.get("SHELL", "/bin/sh")
    prompt = {"PS1": f"{lab.name}:{node}# "}
    plain = {"bash": ["--norc"], "zsh": ["-f"]}.get(Path(program).name, [])  # else the user's own prompt hides ours
    argv = lab.command(node, [program, *plain], terminal=os.isatty(0))
    os.execvpe(argv[0], argv, {**os.environ, **prompt})


def logs(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node of the lab.", autocompletion=complete.nodes)],
    service: Annotated[str | None, typer.Option("--service", "-s", help="One program's log alone.")] = None,
    lines: Annotated[int, typer.Option("--lines", help="How many lines of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the logs grow.")] = False,
    name: LabName = None,
) -> None:
    """Show what the programs of a node wrote."""
    from testbed.runtime.base import log_tail

    lab = find_lab(name)
    lab.node(node)
    found = sorted(path for path in lab.node_folder(node).glob("*.log") if service in (None, path.stem))
    if not found:
        known = ", ".join(path.stem for path in sorted(lab.node_folder(node).glob("*.log"))) or "none"
        raise TestbedError(f"no log of {service or 'any program'} in node {node!r}", remedy=f"logs: {known}")
    if follow:
        os.execvp("tail", ["tail", f"--lines={lines}", "--follow=name", *map(str, found)])
    for path in found:
        if len(found) > 1:
            print(f"==> {path.stem} <==")
        print(log_tail(path, lines))


def find_lab(name: str | None) -> Lab:
    """The lab called ``name``, or the only one that is up."""
    from testbed.lab.down import reap, running
    from testbed.lab.up import attach

    _need_root()
    reap()
    if name is None:
        records = running()
        if len(records) != 1:
            names = ", ".join(record.name for record in records) or "none; start one with `testbed up FILE`"
            raise TestbedError("say which lab with --name" if records else "no lab is up", remedy=f"labs: {names}")
        name = records[0].name
    return attach(name)


def _check_name(name: str) -> None:
    from testbed.model.words import check_name

    try:
        check_name(name)
    except ValueError as error:
        what, remedy = halves(error)
        raise TestbedError(f"--name: {what}", remedy=remedy) from None


def _need_root() -> None:
    if os.geteuid() != 0:
        raise TestbedError("labs belong to root", remedy="run this command as root, such as with sudo")


def print_table(rows: list[dict[str, object]]) -> None:
    """One line a row, the keys as heads."""
    from rich.table import Table
    from rich.text import Text

    from testbed.cli.output import print_whole

    table = Table(box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(key, justify="right" if key in ("nodes", "links") else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    print_whole(table)
