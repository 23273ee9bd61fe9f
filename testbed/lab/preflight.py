"""What a plan needs of this machine, checked before anything is touched."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import PreflightError
from testbed.lab import kernel
from testbed.lab.programs import find, lack
from testbed.lab.state import state_root
from testbed.plan.types import Plan
from testbed.runtime.base import UNPRIVILEGED_ID
from testbed.subsystem import ProgramNeed, programs_of, subsystems

CORE_PROGRAMS = (ProgramNeed("nsenter", "util-linux"), ProgramNeed("setpriv", "util-linux"))
"""What runs programs in nodes."""
NFT = ProgramNeed("nft", "nftables")
"""What loads the rulesets of nodes that have one."""
LEAST_DISK_BYTES = 200 * 2**20
DISK_BYTES_A_NODE = 10 * 2**20
"""Generous for the data and logs of one tor process."""
LEAST_FILES = 1024

Lack = tuple[str, str]
"""What is missing, and the remedy (may be empty)."""


def preflight(plan: Plan) -> None:
    """Raise one PreflightError that names everything this machine lacks for ``plan``.

    Changes nothing but this process's own limit of open files, which is raised as far as it may be.
    """
    lacks = [
        *_root(),
        *_programs(plan),
        *_commands(plan),
        *_subsystems(plan),
        *_engine(plan),
        *_syn_proxy(plan),
        *_disk(plan),
        *_passable(plan),
        *_files(),
    ]
    if not lacks:
        return
    if len(lacks) == 1:
        raise PreflightError(lacks[0][0], remedy=lacks[0][1])
    lines = [f"  - {what}" + (f"\n    {remedy}" if remedy else "") for what, remedy in lacks]
    raise PreflightError("this lab cannot run here, for several reasons:\n" + "\n".join(lines))


def _root() -> Iterator[Lack]:
    if os.geteuid() != 0:
        yield "a lab needs root: it makes network namespaces and programs in them", "run the command with sudo"


def _programs(plan: Plan) -> Iterator[Lack]:
    """The programs of subsystems that have a node which is a plain process, and those that start all of them."""
    needs = dict.fromkeys(CORE_PROGRAMS)
    by_name = subsystems()
    for node in plan.nodes:
        if node.runtime == "process" and node.subsystem in by_name:
            needs |= dict.fromkeys(programs_of(by_name[node.subsystem]))
        if node.nft:
            needs[NFT] = None
    for need in needs:
        found = lack(need)
        if found:
            yield found


def _commands(plan: Plan) -> Iterator[Lack]:
    """The programs that the topology itself names for plain nodes."""
    missing: dict[str, str] = {}
    for node in plan.nodes:
        for service in node.services:
            program = service.argv[0]
            if node.runtime != "process" or "${dir}" in program:
                continue
            if find(program) is None:
                missing.setdefault(program, f"service {service.name!r} of node {node.name!r}")
    for program, owner in missing.items():
        yield f"there is no program {program!r}, which {owner} runs", "install it, or give its full path"


def _subsystems(plan: Plan) -> Iterator[Lack]:
    """What subsystems find out for themselves."""
    for name in plan.sections:
        lacks = getattr(subsystems().get(name), "lacks", None)
        if lacks is not None:
            yield from lacks(plan)


def _engine(plan: Plan) -> Iterator[Lack]:
    containers = [node for node in plan.nodes if node.runtime == "container"]
    if not containers:
        return
    from testbed.runtime import engine, images

    names = ", ".join(node.name for node in containers[:5]) + (", ..." if len(containers) > 5 else "")
    try:
        engine.probe()
        for image in dict.fromkeys(node.image or images.DEFAULT_IMAGE for node in containers):
            if images.labels(image) is None:
                yield images.missing_message(image)
    except engine.EngineError as error:
        yield f"{error.what} (nodes in containers: {names})", error.remedy


def _syn_proxy(plan: Plan) -> Iterator[Lack]:
    """nft would only say that it found no such file."""
    nodes = [node.name for node in plan.nodes if "synproxy" in node.nft]
    if nodes and (reason := kernel.ask().get("synproxy")):
        yield f"this kernel has no SYN proxy ({reason}), which {', '.join(nodes[:5])} need", "leave out `syn_proxy`"


def _disk(plan: Plan) -> Iterator[Lack]:
    folder = existing(state_root())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield f"{folder}: {error.strerror}", "set TESTBED_STATE to another folder"
        return
    wanted = LEAST_DISK_BYTES + DISK_BYTES_A_NODE * len(plan.nodes)
    if free < wanted:
        yield (
            f"the disk is nearly full: {free >> 20} MiB are free in {folder}, and this lab may need {wanted >> 20} MiB",
            "free some space there, or set TESTBED_STATE to a folder on another disk",
        )
    elif os.geteuid() == 0 and os.statvfs(folder).f_flag & os.ST_RDONLY:
        yield f"{folder} is on a file system that is mounted read-only", "set TESTBED_STATE to another folder"


def _passable(plan: Plan) -> Iterator[Lack]:
    """Programs of subsystems in plain nodes open files in the state folder by their full names, and not as root."""
    if not any(node.subsystem and node.runtime == "process" for node in plan.nodes):
        return
    inner = existing(state_root()).resolve()
    for folder in (*reversed(inner.parents), inner):
        if not folder.stat().st_mode & stat.S_IXOTH:
            what = f"{folder}: programs in nodes, which run as user {UNPRIVILEGED_ID}, cannot get through this folder"
            yield what, f"chmod o+x {folder}, or set TESTBED_STATE to a folder elsewhere"
            return


def existing(path: Path) -> Path:
    """``path``, or the nearest folder above it that exists."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _files() -> Iterator[Lack]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        yield (
            f"a process may open only {hard} files here; {LEAST_FILES} are needed",
            f"raise the limit: `ulimit -Hn {LEAST_FILES}` as root, or nofile in /etc/security/limits.conf",
        )
