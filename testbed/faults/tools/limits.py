"""A limit of a control group put on a node: on its container's own group, or on one made for the node's processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import WaitTimeout
from testbed.faults.base import FaultError, Memory
from testbed.faults.tools import programs
from testbed.lab import cgroups

if TYPE_CHECKING:
    from testbed.lab.lab import Lab

Values = Mapping[str, str]
"""File of a control group to what is written into it."""


def remember(lab: Lab, node: str, controller: cgroups.Controller, values: Values) -> Memory:
    """Which group gets the limit: the container's, with the values that it has; or a new one, and where the node's
    processes are now."""
    place = cgroups.hierarchy(controller)
    if lab.node(node).runtime == "container":
        group = place.of(programs.first_process(lab, node))
        before = {name: (group / name).read_text().strip() for name in values}
        return {"group": str(group), "before": before}
    pids = programs.members(lab, node, None)
    if not pids:
        raise FaultError(f"nothing runs in node {node}")
    homes = {}
    for pid in pids:
        try:
            homes[str(pid)] = str(place.of(pid))
        except ProcessLookupError:
            continue
    return {"homes": homes}


def put(lab: Lab, node: str, controller: cgroups.Controller, memory: Memory, values: Values) -> None:
    """Set the limit, and bring the node's processes under it."""
    place = cgroups.hierarchy(controller)
    group = _group(lab, place, memory)
    if "group" in memory:
        _write(group, values)
        return
    place.make(group)
    _write(group, values)

    def outside() -> list[int]:
        found = [pid for pid in programs.members(lab, node, None) if _group_of(place, pid) not in (group, None)]
        for pid in found:
            place.move(pid, group)
        return found

    try:
        programs.await_none(outside, f"the processes of node {node} to be in {group}", 5)
    except WaitTimeout as error:
        raise FaultError(str(error)) from None


def verify(lab: Lab, node: str, controller: cgroups.Controller, memory: Memory, values: Values) -> str:
    """Read back the limit, and that every process of the node is under it."""
    place = cgroups.hierarchy(controller)
    group = _group(lab, place, memory)
    for name, value in values.items():
        if (found := (group / name).read_text().strip()) != value:
            raise FaultError(f"{group / name} reads {found!r} after {value!r} was set")
    pids = [programs.first_process(lab, node)] if "group" in memory else list(programs.members(lab, node, None))
    free = [pid for pid in pids if _group_of(place, pid) not in (group, None)]
    if free:
        raise FaultError(f"processes {free} of node {node} are not in {group}")
    return ", ".join(f"{name} {value}" for name, value in values.items())


def lift(lab: Lab, controller: cgroups.Controller, memory: Memory) -> None:
    """As before: the container's own limit, or the processes back where they were and our group gone."""
    place = cgroups.hierarchy(controller)
    group = _group(lab, place, memory)
    if "group" in memory:
        if group.exists():  # else the container is gone, and its limits with it
            _write(group, memory["before"])
        return
    homes: dict[str, str] = memory["homes"]
    usual = next(iter(homes.values()), str(place.root))
    while pids := place.members(group):
        for pid in pids:
            home = Path(homes.get(str(pid), usual))
            place.move(pid, home if home.exists() else place.root)
    cgroups.remove(group)


def verify_lifted(lab: Lab, controller: cgroups.Controller, memory: Memory) -> str:
    """FaultError if the limit is still there."""
    place = cgroups.hierarchy(controller)
    group = _group(lab, place, memory)
    if "group" not in memory:
        if group.exists():
            raise FaultError(f"the control group {group} is still there, with processes {place.members(group)}")
        return "our control group is gone"
    for name, value in memory["before"].items():
        if group.exists() and (found := (group / name).read_text().strip()) != value:
            raise FaultError(f"{group / name} reads {found!r}, not {value!r} as before")
    return "the container's limit is as before"


def _group(lab: Lab, place: cgroups.Hierarchy, memory: Memory) -> Path:
    return Path(memory["group"]) if "group" in memory else place.own(lab.id, memory["id"])


def _group_of(place: cgroups.Hierarchy, pid: int) -> Path | None:
    try:
        return place.of(pid)
    except ProcessLookupError:
        return None


def _write(group: Path, values: Values) -> None:
    for name, value in values.items():
        try:
            (group / name).write_text(value)
        except OSError as error:
            raise FaultError(f"{group / name} does not take {value!r}: {error.strerror}") from error
