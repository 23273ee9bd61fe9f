"""What a lab must leave as it found it: the state of the host outside of its labs.

Two snapshots are compared by ``difference``; an empty answer means that the host is the same. Counters, ages and
other values that change by themselves are left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

from testbed.net.namespace import NETNS_FOLDER
from testbed.runtime.base import LAB_VARIABLE

Snapshot = dict[str, list[str]]

_MARK = re.compile(rb"\b" + LAB_VARIABLE.encode() + rb"=(\w*)")

_RESTLESS_SYSCTLS = re.compile(
    r"random/(uuid|entropy_avail|boot_id)|fs/(dentry-state|file-nr|inode-nr|inode-state|aio-nr|quota/)|ns_last_pid"
    r"|nf_conntrack_count|pty/nr|kernel/(tainted|sched_domain|perf_event_max_sample_rate)|net/core/.*_stats"
    r"|netfilter/nf_log|stable_secret|debug/exception|mtu_expires|flush|cad_pid|user-nice|bridge-nf"
)


def take() -> Snapshot:
    """The host as it is now. Parts that this user or machine cannot tell are left out."""
    return {
        "links": _ip("link"),
        "addresses": _ip("addr"),
        "routes": _ip("route", "show", "table", "all") + _ip("-6", "route", "show", "table", "all"),
        "rules": _ip("rule") + _ip("-6", "rule"),
        "neighbours": _permanent_neighbours(),
        "qdiscs": _run(["tc", "qdisc", "show"]),
        "nft": [line for line in _run(["nft", "list", "ruleset"]) if "counter packets" not in line],
        "namespaces": sorted(
            path.name for folder in (NETNS_FOLDER, Path("/run/netns")) if folder.is_dir() for path in folder.iterdir()
        ),
        "sysctls": _sysctls(),
        "mounts": sorted(line.split(" ", 4)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": sorted(
            str(path) for owner in ("docker*", "tb-*") for path in Path("/sys/fs/cgroup").glob(f"**/{owner}/**/")
        ),
        "processes": _processes(),
        "containers": _containers(),
    }


def difference(before: Snapshot, after: Snapshot, *, ours: Collection[str] | None = None) -> list[str]:
    """One line for everything that is in one snapshot and not in the other.

    ``ours``, ids of labs: what other labs and other people's containers and namespaces came and went is left out.
    """
    lines: list[str] = []
    for part in before:
        gone = [item for item in _subtract(before[part], after.get(part, [])) if _counts(part, item, ours)]
        new = [item for item in _subtract(after.get(part, []), before[part]) if _counts(part, item, ours)]
        lines.extend(f"{part}: gone: {item}" for item in gone)
        lines.extend(f"{part}: new: {item}" for item in new)
    return lines


def _counts(part: str, item: str, ours: Collection[str] | None) -> bool:
    if ours is None:
        return True
    if part == "mounts":
        return ("nsfs" not in item and "overlay" not in item and "docker" not in item) or _names_one(item, ours)
    if part == "processes":
        return item.startswith("zombie") or _names_one(item, ours)
    return part not in ("namespaces", "cgroups", "containers") or _names_one(item, ours)


def _names_one(item: str, labs: Collection[str]) -> bool:
    return any(lab in item for lab in labs)


def _subtract(items: list[str], others: list[str]) -> list[str]:
    left = list(others)
    result = []
    for item in items:
        if item in left:
            left.remove(item)
        else:
            result.append(item)
    return result


def _run(command: list[str]) -> list[str]:
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except FileNotFoundError:
        return []
    return output.splitlines()


def _ip(*arguments: str) -> list[str]:
    try:
        entries = json.loads("\n".join(_run(["ip", "-json", *arguments])) or "[]")
    except ValueError:
        return []
    for entry in entries:
        if isinstance(entry, dict):
            for volatile in ("expires", "age", "used", "stats64", "stats"):
                entry.pop(volatile, None)
            for address in entry.get("addr_info", []):
                address.pop("valid_life_time", None)
                address.pop("preferred_life_time", None)
    return sorted(json.dumps(entry, sort_keys=True) for entry in entries)


def _permanent_neighbours() -> list[str]:
    return _run(["ip", "neigh", "show", "nud", "permanent"])


def _sysctls() -> list[str]:
    values = []
    for folder, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(folder, name)
            if _RESTLESS_SYSCTLS.search(path):
                continue
            try:
                values.append(f"{path[10:]}={Path(path).read_text().strip()}")
            except (OSError, UnicodeDecodeError):
                continue
    return sorted(values)


def _processes() -> list[str]:
    """Processes that only a lab could have left: marked as a lab's, in a network namespace other than ours, or a zombie
    child of this one. Others come and go on a living machine.
    """
    own_namespace = os.stat("/proc/self/ns/net").st_ino
    kept = {path.stat().st_ino: path.name for path in NETNS_FOLDER.glob("tb-*")}
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            mark = _MARK.search(Path(entry.path, "environ").read_bytes())
            namespace = own_namespace if fields[0] == "Z" else os.stat(f"{entry.path}/ns/net").st_ino
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.append(f"zombie {entry.name}")
        elif mark or namespace != own_namespace:
            where = kept.get(namespace, "another namespace")
            found.append(f"{entry.name} of lab {mark[1].decode() if mark else '?'} in {where}: {command}")
    return sorted(found)


def _containers() -> list[str]:
    return sorted(_run(["docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}"]))
