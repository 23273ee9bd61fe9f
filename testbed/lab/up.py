"""Starting a lab: from a plan to namespaces, containers, links, programs; whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from testbed.errors import ApplyError, TestbedError
from testbed.lab.down import clean, reap
from testbed.lab.lab import Lab
from testbed.lab.ownership import namespace_path
from testbed.lab.preflight import preflight
from testbed.lab.state import Folder, Record, boot_id, lab_id, locked
from testbed.net.impair import EngineName, choose, is_wired
from testbed.plan.types import Plan, RuntimeName
from testbed.progress import Progress, Silent
from testbed.runtime import runtimes
from testbed.runtime.base import UNPRIVILEGED_ID, Place, start_time
from testbed.subsystem import prepared, start_all


def up(
    plan: Plan,
    name: str | None = None,
    *,
    runtime: RuntimeName | None = None,
    progress: Progress | None = None,
    hold: Collection[str] = (),
    owner: int | None = None,
    topology: str = "",
    impair: EngineName | None = None,
    warm: bool = False,
    keep: bool = False,
) -> Lab:
    """Start a lab from ``plan``.

    ``runtime`` overrides every node's runtime, ``hold`` names subsystems whose nodes are made but whose programs are
    not started, ``owner`` is a process whose end makes the lab reapable, ``topology`` says where the plan came from,
    ``impair`` forces the engine for links with delay, jitter, loss and the like, ``warm`` lets the private Tor network
    start with keys and consensus of an earlier start of the same plan. ``keep``: if the lab does not come up, what is
    there of it stays until ``down``, to be looked at; its status is ``failed``.

    Raises PreflightError before anything is touched, TestbedError if the name is taken, ApplyError or WaitTimeout if
    something did not work; then everything that was made has been removed again, but with ``keep``.
    """
    name = name or plan.name
    progress = progress or Silent()
    plan = with_runtime(plan, runtime)
    preflight(plan)
    needs = any(link.forward.needs_engine or link.backward.needs_engine for link in plan.links)
    engine = choose(impair) if needs or impair else None
    reap()
    identity = lab_id(name)
    with locked(identity, name):
        folder = Folder(identity)
        _refuse_if_taken(folder, name)
        record = Record(
            id=identity,
            name=name,
            topology=topology,
            status="starting",
            boot=boot_id(),
            started=time.time(),
            impair=engine,
            runtime=runtime,
            owner_pid=owner,
            owner_started=start_time(owner) if owner else None,
            warm=warm,
        )
        try:
            return _start(folder, record, plan, progress, hold)
        except BaseException as error:
            if keep and isinstance(error, TestbedError | OSError) and folder.read():
                folder.set_status("failed")
                error.add_note(f"lab {name!r} is left as it was then, until `testbed down {name}`")
            else:
                error.add_note(f"lab {name!r} was taken down again; nothing of it is left")
                clean(identity)
            if isinstance(error, OSError):
                raise ApplyError(f"lab {name!r}: {error}", remedy=_remedy(error)) from error
            raise


def with_runtime(plan: Plan, runtime: RuntimeName | None) -> Plan:
    """The plan with every host moved to ``runtime``; routers and switches are plain namespaces in any case.

    TestbedError if a host has a service that cannot run there.
    """
    if runtime is None:
        return plan
    nodes = [node.model_copy(update={"runtime": runtime}) if node.kind == "host" else node for node in plan.nodes]
    for node in nodes:
        roots = [service.name for service in node.services if service.root and node.runtime == "container"]
        if roots:
            raise TestbedError(
                f"{', '.join(roots)} must be root, and containers have no rights to give",
                where=f"node {node.name}",
                remedy="leave out --runtime, and set `runtime: container` where it can be",
            )
    return plan.model_copy(update={"nodes": tuple(nodes)})


def attach(name: str) -> Lab:
    """A handle for a lab that is up; TestbedError if there is none of that name."""
    folder = Folder(lab_id(name))
    record = folder.read()
    if record is None or not record.alive():
        from testbed.lab.down import running

        names = ", ".join(other.name for other in running()) or "none"
        raise TestbedError(f"there is no lab {name!r}", remedy=f"labs that are up: {names}")
    return Lab(folder, record, Plan.model_validate_json(folder.plan.read_text()))


def _refuse_if_taken(folder: Folder, name: str) -> None:
    record = folder.read()
    if record and record.alive():
        source = f" from {record.topology}" if record.topology else ""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.started))
        raise TestbedError(
            f"lab {name!r} {'is up already' if record.status == 'up' else 'is left of a start that failed'}: "
            f"started{source} at {when}",
            remedy=f"take it down with `testbed down {name}`, or start this one under another --name",
        )
    if folder.exists():
        clean(folder.id)


def _start(folder: Folder, record: Record, plan: Plan, progress: Progress, hold: Collection[str]) -> Lab:
    folder.create()
    folder.write(record)
    folder.plan.write_text(plan.model_dump_json())
    lab = Lab(folder, record, plan)
    lab.event("up", topology=record.topology, nodes=len(plan.nodes), links=len(plan.links))
    places = [_make_folder(lab, node.name) for node in plan.nodes]
    pids = _create_containers(places, progress)
    with prepared(lab, progress, hold):
        _build_network(lab, plan, pids, progress)
    lab.start_services()
    start_all(lab, progress, hold)
    lab.record = Record(**{**lab.facts(), "status": "up"})
    lab.save()
    lab.event("ready")
    return lab


def _make_folder(lab: Lab, node: str) -> Place:
    place = lab.place(node)
    place.folder.mkdir(mode=0o700)
    os.chown(place.folder, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    for file in place.node.files:
        path = place.folder / file.path
        for folder in reversed(path.relative_to(place.folder).parents[:-1]):
            (place.folder / folder).mkdir(exist_ok=True)
            os.chown(place.folder / folder, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        path.write_text(file.text.replace("${dir}", str(place.folder)))
        os.chown(path, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    return place


def _create_containers(places: list[Place], progress: Progress) -> dict[str, int]:
    wanted = [place for place in places if place.node.runtime == "container"]
    if not wanted:
        return {}
    progress.update("containers", 0, len(wanted))
    pids = runtimes.make("container").create(wanted)
    progress.update("containers", len(wanted), len(wanted))
    return pids


def _build_network(lab: Lab, plan: Plan, pids: dict[str, int], progress: Progress) -> None:
    from testbed.net.build import build
    from testbed.net.carrier import await_links
    from testbed.net.wire import engine as wire

    def path_of(node: str) -> Path:
        return namespace_path(lab.id, node)

    progress.update("network", 0, len(plan.links))
    engine = lab.record.impair
    build(plan, path_of, pids, engine)
    carried = [link for link in plan.links if is_wired(link, engine)]
    if carried:
        wire.start(lab.folder, lab.id, [wire.wire_link(link, path_of, plan.seed) for link in carried])
        await_links(carried, path_of)
    progress.update("network", len(plan.links), len(plan.links))


def _remedy(error: OSError) -> str:
    import errno

    if error.errno == errno.ENOSPC:
        return "free some disk space in the state folder"
    if error.errno == errno.EMFILE:
        return "raise the limit of open files (`ulimit -n`)"
    return ""
