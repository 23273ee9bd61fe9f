"""What this machine has, what it lacks, and the remedy for each lack. Changes nothing, and needs no root."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError
from testbed.lab import kernel
from testbed.lab.preflight import CORE_PROGRAMS, LEAST_DISK_BYTES, LEAST_FILES, NFT, existing
from testbed.lab.programs import find, lack, version
from testbed.lab.state import state_root
from testbed.net.wire import native
from testbed.subsystem import ProgramNeed, programs_of, subsystems

State = Literal["ok", "warn", "lack"]

SETUP = "run `sudo make setup`"
_ROOT_ONLY = "could not be checked without root"
_CGROUPS = Path("/sys/fs/cgroup")
_CLOCKS = Path("/sys/devices/system/clocksource/clocksource0")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    """``lack``: labs, or the kind of lab that ``found`` names, cannot run. ``warn``: they can, but see ``remedy``."""
    found: str
    remedy: str = ""


def diagnose() -> list[Check]:
    """Look at everything. A check that fails itself becomes a warning; nothing is raised."""
    found: list[Check] = []
    for look in (_root, _kernel, _programs, _engine, _packages, _clock, _limits, _memory, _disk, _cgroups, _netns):
        try:
            found.extend(look())
        except Exception as error:  # a doctor who faints helps nobody
            found.append(Check(look.__name__.strip("_"), "warn", f"could not be checked: {error!r}"))
    return found


def _root() -> Iterator[Check]:
    if os.geteuid() == 0:
        yield Check("root", "ok", "yes")
    else:
        found = f"no (uid {os.geteuid()}); `validate`, `plan`, `graph` and `report` work, labs do not"
        yield Check("root", "warn", found, "use sudo for commands that start or use labs")


_FEATURES = {
    "veth": ("veth", "links"),
    "bridge": ("bridge", "switches"),
    "tbf": ("token bucket (sch_tbf)", "rates of links"),
    "forwarding": ("IPv4 forwarding", "routers"),
    "nft": ("nftables with NAT", "address translation"),
    "synproxy": ("SYN proxy (nft_synproxy)", "`syn_proxy` of edge filters"),
    "tun": ("TUN/TAP", "delayed links where there is no netem"),
}


def _kernel() -> Iterator[Check]:
    answers = kernel.ask()
    reason = answers["namespaces"]
    if reason:
        if os.geteuid() == 0:
            remedy = "labs need CONFIG_NET_NS, and the right to use it: not in an unprivileged container"
            yield Check("network namespaces", "lack", reason, remedy)
        else:
            yield Check("kernel features", "warn", f"{_ROOT_ONLY} ({reason})", "run `sudo testbed doctor`")
        return
    yield Check("network namespaces", "ok", f"Linux {os.uname().release}")
    for key, (name, what) in _FEATURES.items():
        if not answers[key]:
            yield Check(name, "ok", "works")
        elif key in ("tun", "synproxy") or os.geteuid() != 0:
            yield Check(name, "warn", answers[key], f"needed for {what}")
        else:
            yield Check(name, "lack", answers[key], f"needed for {what}; use a kernel that has it")
    if not answers["netem"]:
        yield Check("delayed links", "ok", "by the kernel's netem")
    elif answers["tun"]:
        found = "neither netem nor TUN: no delay, jitter or loss on links"
        yield Check("delayed links", "warn", found, "use a kernel that has sch_netem or TUN; rate works in any case")
    else:
        yield Check("delayed links", "ok", f"by the userspace wire, {_wire_core()}; the kernel has no netem")


def _wire_core() -> str:
    try:
        native.compiled()
    except TestbedError as error:
        return f"its slower core in Python ({error.what})"
    return "its core in C"


def _programs() -> Iterator[Check]:
    owners: dict[ProgramNeed, str] = dict.fromkeys((*CORE_PROGRAMS, NFT), "every lab")
    for name, subsystem in subsystems().items():
        for need in programs_of(subsystem):
            owners.setdefault(need, f"`{name}`")
    for need, owner in owners.items():
        problem = lack(need)
        if problem:
            yield Check(need.program, "lack", f"{problem[0]} (by {owner})", problem[1])
        else:
            path = find(need.program) or ""
            yield Check(need.program, "ok", f"{version(path)} at {path}".strip())


def _engine() -> Iterator[Check]:
    from testbed.runtime import engine, images

    try:
        answering = engine.probe()
    except engine.EngineError as error:
        # Everything but containers works without, so this is no lack.
        yield Check("Docker engine", "warn", error.what, error.remedy)
        return
    yield Check("Docker engine", "ok", f"{answering.version} (API {answering.api}) at {answering.socket}")
    name = "containers and the engine"
    if engine.is_outlived():
        yield Check(name, "ok", "containers outlive a restart of the engine")
    else:
        remedy = 'do not restart it while labs are up, or put `"live-restore": true` into /etc/docker/daemon.json'
        yield Check(name, "warn", "a restart of the engine ends the containers of every lab", remedy)
    state = images.state()
    if state == "present":
        yield Check("container image", "ok", images.DEFAULT_IMAGE)
    elif state == "outdated":
        found = f"{images.DEFAULT_IMAGE} was made from another version of images/node"
        yield Check("container image", "warn", found, "run `testbed images build`")
    else:
        what, remedy = images.missing_message(images.DEFAULT_IMAGE)
        yield Check("container image", "warn", what, remedy)


def _packages() -> Iterator[Check]:
    from packaging.requirements import Requirement

    python = ".".join(str(part) for part in sys.version_info[:3])
    yield Check("Python", "ok", f"{python} at {sys.prefix}")
    wrong = []
    for text in metadata.requires("testbed") or []:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(have, prereleases=True):
            wrong.append(f"{requirement.name} is {have}, not {requirement.specifier}")
    if wrong:
        yield Check("Python packages", "lack", ", ".join(wrong), "run `make setup` (or `make test-fast` without root)")
    else:
        yield Check("Python packages", "ok", "all there")


def _clock() -> Iterator[Check]:
    try:
        source = (_CLOCKS / "current_clocksource").read_text().strip()
    except OSError:
        source = "unknown"
    slow = {"jiffies", "hpet", "acpi_pm", "refined-jiffies"}
    remedy = "slow or coarse; choose tsc or the hypervisor's clock where the kernel offers one"
    yield Check("clock source", "warn" if source in slow else "ok", source, remedy if source in slow else "")
    year = time.gmtime().tm_year
    newest = time.gmtime(Path(__file__).stat().st_mtime).tm_year
    if year < newest:
        yield Check("clock", "lack", f"the clock says {year}, before this program was installed", "set the clock")
    elif _synchronised():
        yield Check("clock", "ok", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, synchronised")
    else:
        found = f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, not synchronised with anything"
        yield Check("clock", "ok", f"{found} (runs use the monotonic clock)")


def _synchronised() -> bool:
    """Whether the kernel holds its clock to be synchronised: adjtimex(2), which here only reads."""
    timex = (ctypes.c_byte * 256)()  # struct timex is smaller; modes = 0 asks without changing anything
    state: int = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    return 0 <= state < 5  # TIME_ERROR = 5: not synchronised


def _limits() -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    found = f"{soft} open files, may be raised to {'any number' if unlimited else hard}"
    if not unlimited and hard < LEAST_FILES:
        yield Check("file limit", "lack", found, f"ulimit -Hn {LEAST_FILES}, or nofile in /etc/security/limits.conf")
    else:
        yield Check("file limit", "ok", found)


def _memory() -> Iterator[Check]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    amounts = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
    free = amounts["MemAvailable"] >> 10
    found = f"{free} MiB free, {os.cpu_count()} CPUs"
    if free < 3072:
        yield Check("memory", "warn", found, "a Tor network of 70 nodes takes some 2 GiB; small ones fit")
    else:
        yield Check("memory", "ok", found)


def _disk() -> Iterator[Check]:
    folder = existing(state_root())
    free = shutil.disk_usage(folder).free
    found = f"{free >> 20} MiB free in {folder}"
    remedy = "free some space, or set TESTBED_STATE to a folder on another disk"
    if free < LEAST_DISK_BYTES:
        yield Check("disk", "lack", found, remedy)
    elif free < 10 * LEAST_DISK_BYTES:
        yield Check("disk", "warn", found, remedy)
    else:
        yield Check("disk", "ok", found)


def _cgroups() -> Iterator[Check]:
    if (_CGROUPS / "cgroup.controllers").exists():
        yield Check("control groups", "ok", "version 2")
    elif (_CGROUPS / "memory").is_dir() and (_CGROUPS / "pids").is_dir():
        mixed = " and 2 side by side" if (_CGROUPS / "unified").is_dir() else ""
        yield Check("control groups", "ok", f"version 1{mixed}")
    else:
        yield Check("control groups", "warn", "none mounted with memory and pids; containers need them", SETUP)


def _netns() -> Iterator[Check]:
    from testbed.net.namespace import NETNS_FOLDER

    folder = existing(NETNS_FOLDER)
    if os.geteuid() != 0:
        yield Check("namespace folder", "ok", f"{NETNS_FOLDER} ({_ROOT_ONLY})")
    elif os.statvfs(folder).f_flag & os.ST_RDONLY:
        yield Check("namespace folder", "lack", f"{folder} is read-only", "labs keep their namespaces there")
    else:
        yield Check("namespace folder", "ok", str(NETNS_FOLDER) if folder == NETNS_FOLDER else f"{folder}, to be made")
