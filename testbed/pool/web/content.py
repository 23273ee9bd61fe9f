"""The files that a server gives, and those that it takes."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path


class Content:
    """The files under a folder, and the SHA-256 of each."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._hashes: dict[str, tuple[tuple[int, ...], str]] = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                self.etag(str(path.relative_to(self.root)), path.stat())

    def open(self, name: str) -> tuple[int, os.stat_result]:
        """Open a file under the root, and nothing outside of it. OSError if there is none."""
        path = (self.root / name).resolve()
        if not path.is_relative_to(self.root):
            raise FileNotFoundError(name)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            os.close(fd)
            raise FileNotFoundError(name)
        return fd, facts

    def etag(self, name: str, facts: os.stat_result) -> str:
        """The content's hash, computed anew when the file has changed."""
        version = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        known = self._hashes.get(name)
        if known is None or known[0] != version:
            with open(self.root / name, "rb") as file:
                known = version, hashlib.file_digest(file, "sha256").hexdigest()
            self._hashes[name] = known
        return known[1]


class Uploads:
    """A folder, which is made, for the files that clients send."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(exist_ok=True)

    def begin(self) -> int:
        """A file for what comes, that has no name yet."""
        return os.open(self.folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def keep(self, fd: int, name: str) -> tuple[int, str]:
        """Put all of it under its name; its size and SHA-256."""
        size, digest = 0, hashlib.sha256()
        temporary = self.folder / f".{os.getpid()}.{fd}"
        with temporary.open("wb") as file:
            while data := os.pread(fd, 1 << 20, size):
                digest.update(data)
                file.write(data)
                size += len(data)
        temporary.rename(self.folder / name)
        return size, digest.hexdigest()
