"""Taking labs down, whatever state they are in, and reaping those that nobody will take down any more.

Everything goes by ownership, in the reverse order of ``up``: containers, processes, namespaces (and with them links,
addresses, routes and rules), control groups, and the state folder last. Doing it twice is the same as doing it once.
"""

from __future__ import annotations

import logging

from testbed.errors import TestbedError
from testbed.lab import cgroups, ownership, revival
from testbed.lab.state import Folder, Record, all_labs, is_locked, lab_id, locked
from testbed.runtime import runtimes

_log = logging.getLogger(__name__)


def down(name: str) -> None:
    """Take the lab called ``name`` down; TestbedError if there is none, or if another process works on it."""
    identity = lab_id(name)
    with locked(identity, name):
        if not Folder(identity).exists() and not ownership.namespaces(identity):
            names = ", ".join(record.name for record in running()) or "none"
            raise TestbedError(f"there is no lab {name!r}", remedy=f"labs that are up: {names}")
        clean(identity)


def down_all() -> list[str]:
    """Take down every lab of this state folder; returns their names (ids where an interrupted start left none)."""
    names = []
    for folder in all_labs():
        record = folder.read()
        name = record.name if record else folder.id
        with locked(folder.id, name):
            clean(folder.id)
        names.append(name)
    return names


def clean(identity: str) -> None:
    """Remove all that a lab owns. The caller holds its lock."""
    folder = Folder(identity)
    if folder.exists():
        folder.set_status("stopping")
    if _may_have_containers(folder):
        runtimes.make("container").remove(identity)
    ownership.end_processes(identity)
    if _may_have_containers(folder):  # a program of the lab, such as a pool's agent, may have made one meanwhile
        runtimes.make("container").remove(identity)
    ownership.remove_namespaces(identity)
    cgroups.remove_all(identity)
    folder.remove()


def _may_have_containers(folder: Folder) -> bool:
    """Whether the engine must be asked. A lab of plain processes must come down where there is no engine."""
    try:
        text = folder.plan.read_text()
    except OSError:
        return False  # the plan is written before the first container is made
    return '"runtime":"container"' in text


def reap() -> list[str]:
    """Take down labs whose owner died, whose start was interrupted, or that another boot left; returns their names.

    In labs that stay, start the wire again if it was killed, and heal the faults that whoever injected them has left
    behind.
    """
    reaped = []
    for folder in all_labs():
        record = folder.read()
        if record and record.alive():
            revival.revive(folder)
            _heal_abandoned(folder, record.name)
            continue
        if is_locked(folder.id):
            continue
        name = record.name if record else folder.id
        with locked(folder.id, name):
            record = folder.read()
            if folder.exists() and not (record and record.alive()):
                clean(folder.id)
                reaped.append(name)
    return reaped


def _heal_abandoned(folder: Folder, name: str) -> None:
    """A fault that cannot be healed is reported, and does not keep another command from its work."""
    if not (folder.path / "faults").is_dir():
        return
    from testbed.faults.faults import Faults
    from testbed.faults.journal import Journal
    from testbed.lab.up import attach

    try:
        if any(entry.abandoned() for entry in Journal(folder.path).entries()):
            Faults(attach(name)).heal_all(abandoned_only=True)
    except TestbedError as error:
        _log.warning("lab %s: a fault that was left behind could not be healed: %s", name, error)


def running() -> list[Record]:
    """Records of the labs that are up or being started, by name."""
    records = [record for folder in all_labs() if (record := folder.read())]
    return sorted(records, key=lambda record: record.name)
