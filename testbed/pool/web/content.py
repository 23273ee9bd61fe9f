"""The files that a server gives."""

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
