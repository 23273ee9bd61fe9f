"""Integrity: what every file must be, and whether it is.

A manifest has the SHA-256, mode and owner of each file and the target of each symbolic link. Hashing an image of 175
MB takes about a second, too long for every rotation; so the manifest also keeps the inode, size and both times of each
file as it was hashed. The kernel sets the time of the last change (ctime) at each write, and no call sets it to
another value; so a file whose inode, size and times are as they were has the content that it had (unless somebody
sets the machine's clock, or writes to the block device: both need root on the host, which is trusted here). Whatever
looks otherwise is hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MOST_NAMED = 20
"""Files that a finding lists by name."""
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Known:
    """What a file must be, and how it looked when it was."""

    content: str
    """SHA-256, or the target of a symbolic link, or empty for a folder."""
    mode: int
    """Kind and permissions (inode(7))."""
    owner: tuple[int, int]
    look: tuple[int, int, int, int]
    """Inode, size, time of modification, time of change."""


Manifest = Mapping[str, Known]
"""By path within the root."""


def make(root: Path, leave_out: Collection[str] = ()) -> Manifest:
    """The manifest of what is below ``root``, without the paths in it that are left out and what is below them.

    OSError if something cannot be read.
    """
    return {path: _known(root, path, found) for path, found in _walk(str(root), "", frozenset(leave_out))}


def differences(manifest: Manifest, root: Path, leave_out: Collection[str] = ()) -> list[str]:
    """What is otherwise than it must be, each in words, at most ``MOST_NAMED``; empty if nothing is."""
    found: list[str] = []
    missing = set(manifest)
    for path, status in _walk(str(root), "", frozenset(leave_out)):
        missing.discard(path)
        if wrong := _difference(manifest.get(path), root, path, status):
            found.append(wrong)
    return _shortened([*found, *(f"{path} is missing" for path in sorted(missing))])


class Watch:
    """``differences`` of the same files again and again: after the first time only what looks otherwise than then.

    How all look is asked of find(1), which takes half the time.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._good: frozenset[bytes] = frozenset()

    def differences(self, root: Path, leave_out: Collection[str] = ()) -> list[str]:
        """See the function."""
        looks = self._looks(root)
        if not self._good:
            if not (found := differences(self._manifest, root, leave_out)):
                self._good = looks
            return found
        found = []
        for path in sorted({_path(look) for look in looks ^ self._good}):
            if any(path == point or path.startswith(f"{point}/") for point in leave_out) or not path:
                continue
            try:
                wrong = _difference(self._manifest.get(path), root, path, os.lstat(root / path))
            except FileNotFoundError:
                wrong = f"{path} is missing" if path in self._manifest else ""
            if wrong:
                found.append(wrong)
        return _shortened(found)

    def _looks(self, root: Path) -> frozenset[bytes]:
        form = r"%i %s %T@ %C@ %m %y %U %G %P\0"
        done = subprocess.run(["find", f"{root}/", "-xdev", "-printf", form], capture_output=True, check=False)
        return frozenset(done.stdout.split(b"\0")[:-1])


def _path(look: bytes) -> str:
    return os.fsdecode(look.split(b" ", 8)[8])


def _difference(known: Known | None, root: Path, path: str, status: os.stat_result) -> str:
    """What is wrong with one file, in words; empty if nothing is."""
    if known is None:
        return f"{path} is not known"
    if known.mode != status.st_mode or known.owner != (status.st_uid, status.st_gid):
        return f"{path} has another mode or owner"
    if stat.S_ISDIR(status.st_mode) or known.look == _look(status):
        return ""
    try:
        return "" if _content(f"{root}/{path}", status) == known.content else f"{path} has other content"
    except OSError as error:
        return f"{path} cannot be read: {error}"


def _shortened(found: list[str]) -> list[str]:
    if len(found) > MOST_NAMED:
        return [*found[:MOST_NAMED], f"and {len(found) - MOST_NAMED} more"]
    return found


def make_of(root: Path, paths: Iterable[str]) -> Manifest:
    """The manifest of single files below ``root``."""
    return {path: _known(root, path, os.lstat(root / path)) for path in paths}


def differences_of(manifest: Manifest, root: Path) -> list[str]:
    """As ``differences``, of single files."""
    now = {}
    for path in manifest:
        with suppress(OSError):
            now[path] = _known(root, path, os.lstat(root / path))
    return [
        f"{path} is otherwise than it was"
        for path, known in manifest.items()
        if path not in now or replace(now[path], look=known.look) != known
    ]


def save(manifest: Manifest, file: Path, about: str = "") -> None:
    """Write it down; ``about`` says what it is of."""
    rows = {path: [k.content, k.mode, *k.owner, *k.look] for path, k in manifest.items()}
    file.write_text(json.dumps({"about": about, "files": rows}))


def load(file: Path) -> tuple[Manifest, str]:
    """The reverse of ``save``."""
    data: dict[str, Any] = json.loads(file.read_text())
    return {path: Known(r[0], r[1], (r[2], r[3]), (r[4], r[5], r[6], r[7])) for path, r in data["files"].items()}, data[
        "about"
    ]


def mounts(pid: int) -> set[str]:
    """Mount points of a process besides its root, as paths below it: what is there is not of its image."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    points = (line.split()[4].encode().decode("unicode_escape") for line in lines)
    return {point[1:] for point in points if point != "/"}


def _walk(root: str, below: str, leave_out: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(f"{root}/{below}" if below else root) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = f"{below}/{entry.name}" if below else entry.name
        if path in leave_out:
            continue
        status = entry.stat(follow_symlinks=False)
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk(root, path, leave_out)


def _known(root: Path, path: str, status: os.stat_result) -> Known:
    content = _content(f"{root}/{path}", status)
    return Known(content, status.st_mode, (status.st_uid, status.st_gid), _look(status))


def _look(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _content(path: str, status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return ""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
