"""Commands about faults: ``fault list``, ``inject``, ``heal``, ``ps``, ``timeline``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import complete
from testbed.cli.lab import LabName, find_lab
from testbed.errors import TestbedError, halves

if TYPE_CHECKING:
    from testbed.faults.base import Fault
    from testbed.faults.journal import Entry

AsJson = Annotated[bool, typer.Option("--json", help="One JSON array.")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    faults = typer.Typer(no_args_is_help=True, help="Faults of a running lab.")
    faults.command("list")(list_faults)
    faults.command()(inject)
    faults.command()(heal)
    faults.command("ps")(show)
    faults.command()(timeline)
    app.add_typer(faults, name="fault")


def list_faults(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="All about this one.", autocompletion=complete.faults)
    ] = None,
) -> None:
    """List the faults that there are.

    Settings in brackets may be left out.
    """
    from testbed.faults.base import fault_class, known_faults, settings_text

    if kind is not None:
        _describe(kind, fault_class(kind))
        return
    rows = {name: settings_text(fault) for name, fault in known_faults().items() if not fault.combines}
    width = max(map(len, rows))
    for name, settings in rows.items():
        print(f"{name:{width}}  {settings}")


def inject(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="As `fault list` shows it.", autocompletion=complete.faults)
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, with its unit; several values: A,B."),
    ] = None,
    hold: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Heal it after so long, or at Ctrl-C; else it stays.")
    ] = None,
    name: LabName = None,
) -> None:
    """Do something bad to a lab, and prove that it took. Without --for it stays until `fault heal`."""
    from testbed.faults.base import fault_class, make_fault
    from testbed.faults.faults import Faults, own_faults
    from testbed.model.quantities import format_duration_us

    seconds = _seconds(hold) if hold is not None else None
    fault = make_fault(kind, _settings(settings or [], fault_class(kind)))
    lab = find_lab(name)
    if seconds is None:
        entry = Faults(lab).inject(fault)
        print(f"fault {entry.id} {'has been injected' if fault.momentary else 'is active'}")
        return
    with own_faults(lab).active(fault) as entry:
        print(f"fault {entry.id} is active for {format_duration_us(round(seconds * 1e6))}", flush=True)
        time.sleep(seconds)
    print(f"fault {entry.id} is healed")


def heal(
    identities: Annotated[list[str] | None, typer.Argument(metavar="ID", help="As `fault ps` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Heal every fault of the lab.")] = False,
    name: LabName = None,
) -> None:
    """Undo faults, and prove that they are undone."""
    from testbed.faults.faults import Faults

    if everything == bool(identities):
        raise TestbedError("say which fault to heal", remedy="name it, or give --all")
    faults = Faults(find_lab(name))
    if everything:
        done = faults.heal_all()
    else:
        entries = [faults.entry(identity) for identity in identities or []]
        done = [entry.id for entry in entries if faults.heal(entry)]
    print("\n".join(f"fault {identity} is healed" for identity in done) or "there is no fault")


def show(as_json: AsJson = False, name: LabName = None) -> None:
    """List the faults of a lab that are not healed."""
    from testbed.cli.lab import print_table
    from testbed.faults.faults import Faults

    rows = [_row(entry) for entry in Faults(find_lab(name)).entries()]
    if as_json:
        print(json.dumps(rows, indent=1))
    elif not rows:
        print("there is no fault")
    else:
        print_table([{**row, "settings": _words(row["settings"])} for row in rows])


def timeline(
    file: Annotated[
        Path | None, typer.Option("--print", metavar="FILE", help="Only print what a topology's timeline comes to.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --print: seed instead of the topology's own.")] = None,
    name: LabName = None,
) -> None:
    """Run the timeline of a lab's topology.

    From its beginning to its end. Ctrl-C heals everything and stops.
    """
    from testbed.faults.runner import Timeline
    from testbed.faults.timeline import parse, schedule, timeline_text
    from testbed.plan.text import counted

    if file is not None:
        from testbed.plan.load import load_topology

        _, plan = load_topology(file, seed=seed)
        entries, _ = parse(plan.sections.get("timeline", {}).get("entries", ()))
        print(timeline_text(schedule(entries, plan.seed)), end="")
        return
    lab = find_lab(name)
    run: Timeline = lab.subsystem("timeline")
    lab.listeners.append(_say)
    done = run.run()
    injected = counted(sum(one.injected is not None for one in done), "fault")
    print(f"the timeline is over: {injected}, all healed")


def _say(_: float, kind: str, node: str, detail: dict[str, Any]) -> None:
    if kind == "fault" and detail["phase"] in ("verified", "healed"):
        print(f"{time.strftime('%H:%M:%S')} {detail['id']} {detail['phase']}: {detail['seen']}", flush=True)


def _describe(kind: str, fault: type[Fault]) -> None:
    print(f"{kind}: {' '.join((fault.__doc__ or '').split())}\n")
    width = max(map(len, fault.model_fields), default=0)
    for name, field in fault.model_fields.items():
        optional = "" if field.is_required() else " May be left out."
        print(f"  {name:{width}}  {field.description or ''}{optional}")


def _settings(words: list[str], fault: type[Fault]) -> dict[str, Any]:
    """Settings as the topology language would read them; text with commas is a list where one is wanted."""
    from testbed.model.document import parse_document

    found: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator:
            raise TestbedError(f"setting {word!r} has no value", remedy="write --set KEY=VALUE")
        if key in found:
            raise TestbedError(f"setting {key!r} is given twice", remedy="give one of them")
        document = parse_document(text)
        for problem in document.problems:
            raise TestbedError(f"setting {key}: {problem.message}", remedy=problem.remedy)
        value = document.data
        if isinstance(value, str) and _takes_list(fault, key):
            value = [part.strip() for part in value.split(",")]
        found[key] = value
    return found


def _takes_list(fault: type[Fault], key: str) -> bool:
    return bool(fault.model_json_schema()["properties"].get(key, {}).get("type") == "array")


def _seconds(text: str) -> float:
    from testbed.model.quantities import parse_duration_us

    try:
        return parse_duration_us(text) / 1e6
    except ValueError as error:
        what, remedy = halves(error)
        raise TestbedError(f"--for: {what}", remedy=remedy) from None


def _row(entry: Entry) -> dict[str, Any]:
    owner = "nobody" if entry.owner_pid is None else f"process {entry.owner_pid}"
    return {
        "id": entry.id,
        "state": "abandoned" if entry.abandoned() else entry.state,
        "since": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.since)),
        "owner": owner,
        "settings": {key: value for key, value in entry.settings.items() if value is not None},
    }


def _words(settings: dict[str, Any]) -> str:
    """As --set takes them, where one value is a list of words."""
    shown = {key: ",".join(value) if _is_words(value) else value for key, value in settings.items()}
    return ", ".join(f"{key}={value}" for key, value in shown.items())


def _is_words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
