"""What a run ran on: programs, kernel, images, packages and machine. For the manifest; nothing here may fail a run."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.plan.types import Plan

_PROGRAMS = {
    "tor": (("tor", "--version"), r"Tor version ([\w.+-]+?)\.?\s"),
    "nginx": (("nginx", "-v"), r"nginx/([\w.+-]+)"),
}


def versions(plan: Plan) -> dict[str, Any]:
    """Versions of all that could change a figure. A program that is not installed is an empty string."""
    found: dict[str, Any] = {name: _program(*how) for name, how in _PROGRAMS.items()}
    found["kernel"] = platform.release()
    found["python"] = platform.python_version()
    found["packages"] = dict(_packages())
    found |= _engine(plan)
    return found


def machine() -> dict[str, Any]:
    """CPU model and count, memory in bytes, architecture, operating system."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        system = ""
    return {
        "cpu_model": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_bytes": 1024 * int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]),
        "architecture": platform.machine(),
        "system": system,
    }


def _program(argv: tuple[str, ...], pattern: str) -> str:
    path = shutil.which(argv[0])
    if path is None:
        return ""
    try:
        return _said(argv, pattern, path, os.stat(path).st_mtime_ns)
    except (OSError, subprocess.TimeoutExpired):
        return ""


@cache  # several runs of one process ask a program once; ``path`` and ``changed`` tell it from another of its name
def _said(argv: tuple[str, ...], pattern: str, path: str, changed: int) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    match = re.search(pattern, done.stdout + done.stderr + "\n")
    return match.group(1) if match else ""


@cache  # a process has those that it started with
def _packages() -> dict[str, str]:
    found = {}
    try:
        names = ["testbed", *(re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in requires("testbed") or ())]
    except PackageNotFoundError:
        names = []
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _engine(plan: Plan) -> dict[str, Any]:
    """Version of the container engine and ids of the plan's images; nothing where the plan has no container."""
    nodes = [node for node in plan.nodes if node.runtime == "container"]
    if not nodes:
        return {"engine": "", "images": {}}
    images: dict[str, str] = {}
    try:
        import docker

        from testbed.runtime.images import DEFAULT_IMAGE

        client = docker.from_env(timeout=10)
        try:
            engine = str(client.version().get("Version", ""))
            for tag in sorted({node.image or DEFAULT_IMAGE for node in nodes}):
                images[tag] = str(client.images.get(tag).id)
        finally:
            client.close()
    except Exception as error:  # the manifest says what is known; the lab itself reports an engine that fails
        return {"engine": f"unknown: {error}", "images": images}
    return {"engine": engine, "images": images}


def _field(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return ""


def writer() -> dict[str, Any]:
    """Which process writes a run, so that a reader can tell a running one from one that was killed."""
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot": _boot(), "argv": sys.argv}


def writer_alive(record: dict[str, Any]) -> bool:
    """Whether the process that ``writer`` described still exists on this machine."""
    try:
        return bool(record["boot"] == _boot() and start_ticks(int(record["pid"])) == record["start_ticks"])
    except (KeyError, TypeError, ValueError):
        return False


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc(5), stat field 22); -1 if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return -1


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
