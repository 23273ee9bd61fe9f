"""Revision counters, one for each blinded key, on disk: an HSDir takes a descriptor only with a higher one."""

from __future__ import annotations

import json
import os
from pathlib import Path

from testbed.errors import TestbedError

LARGEST = 2**63 - 1
"""A counter is a 64-bit number (rend-spec-v3 [DESC-OUTER]); one at the end could have no successor."""


class Counters:
    """The highest counter used or seen for each blinded key. Kept in a file, so that a restart does not begin below."""

    def __init__(self, path: Path) -> None:
        """TestbedError if the file is there and cannot be read."""
        self._path = path
        try:
            self._highest: dict[str, int] = {key: int(value) for key, value in json.loads(path.read_text()).items()}
        except FileNotFoundError:
            self._highest = {}
        except (OSError, ValueError, AttributeError) as error:
            raise TestbedError(
                f"the revision counters cannot be read: {error}",
                where=str(path),
                remedy="remove the file; the HSDirs are then asked for theirs",
            ) from error

    def saw(self, key: bytes, revision: int) -> None:
        """Remember a counter that somebody has used."""
        if revision > self._highest.get(key.hex(), 0):
            self._highest[key.hex()] = revision

    def next(self, key: bytes) -> int:
        """A counter above all that were used or seen for this key; it is on disk before it is used."""
        value = self._highest.get(key.hex(), 0) + 1
        if value > LARGEST:
            raise TestbedError(
                "no revision counter is left for this key",
                where=str(self._path),
                remedy="the service needs another address, or the next time period",
            )
        self._highest[key.hex()] = value
        self._save()
        return value

    def _save(self) -> None:
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with fresh.open("w") as file:
            json.dump(self._highest, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
