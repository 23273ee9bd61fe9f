"""The command that runs the distributor on any tor network whose control ports it is given; no lab is needed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.errors import TestbedError

ONCE = 120.0
"""Seconds in which ``--once`` must be done."""


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(distributor)


def distributor(
    control: Annotated[
        list[str],
        typer.Option(
            metavar="[ADDRESS=]CONTROL",
            help="Control socket (a path) or port (HOST:PORT) of an instance; once for each. "
            "With its own onion address before it, for instances that have one (hybrid).",
        ),
    ],
    key: Annotated[Path, typer.Option(metavar="HS_DIR", help="HiddenServiceDir with the key of the service.")],
    via: Annotated[
        list[str] | None,
        typer.Option(metavar="CONTROL", help="Tor that uploads and fetches; default: the instances'. May be repeated."),
    ] = None,
    address: Annotated[str, typer.Option(help="The onion address that the key must belong to.")] = "",
    cookie: Annotated[Path | None, typer.Option(metavar="FILE", help="Control cookie, if not where tor says.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Where counters and events are kept.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End as soon as everything is placed and fetched back.")] = False,
) -> None:
    """Spread an onion service's descriptors over its HSDirs.

    On any tor network, for several instances of one service that have `PublishHidServDescriptors 0`. It goes on until
    Ctrl-C; the descriptors then stay where they are.
    """
    from testbed.tor.distribute.engine import Distributor
    from testbed.tor.distribute.journal import STATUS, Journal, read_json
    from testbed.tor.distribute.settings import Member, Settings, read_key

    secret = read_key(key, address)
    folder = state or _default_state(secret.address)
    instances = tuple(_instance(number, text) for number, text in enumerate(control, 1))
    mixed = {bool(member.address) for member in instances}
    if len(mixed) > 1:
        raise TestbedError("some instances have an address of their own and some have not", remedy="give all or none")
    settings = Settings(
        mode="hybrid" if mixed == {True} else "distributor",
        key=str(key),
        address=address,
        instances=instances,
        agents=tuple(Member(name=text, control=text) for text in via or ()),
        folder=str(folder),
        cookie=str(cookie or ""),
    )
    distributor = Distributor(settings, Journal(folder, _tell))
    distributor.open()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(f"{settings.mode} of {secret.address}: {len(instances)} instances, state in {folder}", flush=True)
    if not once:
        distributor.run(stop)
        return
    worker = threading.Thread(target=distributor.run, args=(stop,), daemon=True)
    worker.start()
    deadline = time.monotonic() + ONCE
    complete = False
    while worker.is_alive() and not (complete := bool(read_json(folder / STATUS).get("complete"))):
        if time.monotonic() > deadline:
            stop.set()
        worker.join(0.1)
    stop.set()
    worker.join()
    if not complete:
        waiting = read_json(folder / STATUS).get("waiting", {})
        seen = "; ".join(f"{name}: {why}" for name, why in waiting.items()) or "HSDirs did not take descriptors"
        raise TestbedError(f"not everything could be placed: {seen}")


def _instance(number: int, text: str) -> Any:
    from testbed.tor.distribute.settings import Member, read_address

    address, separator, where = text.partition("=")
    if not separator or "/" in address:  # a path may have the sign as well
        return Member(name=f"instance{number}", control=text)
    read_address(address)
    return Member(name=f"instance{number}", control=where, address=address)


def _default_state(address: str) -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "testbed" / "distributor" / address.removesuffix(".onion")


def _tell(kind: str, node: str, detail: Mapping[str, Any]) -> None:
    now = time.strftime("%H:%M:%S")
    words = ", ".join(f"{key}: {_plain(value)}" for key, value in detail.items() if value not in ("", [], {}))
    print(f"{now} {kind.replace('_', ' ')} {node} {words}".replace("  ", " ").rstrip(), file=sys.stdout, flush=True)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name} {_plain(item)}" for name, item in value.items())
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
