"""What a distributor says: events as they happen, one JSON object a line, and its state as one JSON file."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EVENTS = "events.jsonl"
STATUS = "status.json"
OWNERS = "owners.json"

Listener = Callable[[str, str, Mapping[str, Any]], None]
"""Called with kind, node and detail of each event, from any thread."""


class Journal:
    """Writes into one folder. For several threads."""

    def __init__(self, folder: Path, listener: Listener | None = None) -> None:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._folder = folder
        self._listener = listener
        self._lock = threading.Lock()
        self._owners: dict[str, str] = read_json(folder / OWNERS)

    def event(self, kind: str, node: str = "", **detail: Any) -> None:
        """Something happened."""
        line = json.dumps({"t": time.monotonic(), "wall": time.time(), "kind": kind, "node": node, **detail})
        with self._lock, (self._folder / EVENTS).open("a") as file:
            file.write(line + "\n")
        if self._listener is not None:
            self._listener(kind, node, detail)

    def status(self, status: Mapping[str, Any]) -> None:
        """Replace the state."""
        self._write(STATUS, status)

    def owns(self, instance: str, keys: frozenset[bytes]) -> None:
        """Remember whose introduction points have these keys."""
        with self._lock:
            new = {key.hex(): instance for key in keys} | self._owners
            if len(new) != len(self._owners):
                self._owners = new
                self._write(OWNERS, new)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        path = self._folder / name
        fresh = path.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}")
        fresh.write_text(json.dumps(content, indent=1))
        fresh.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """What a JSON file says; nothing where there is none yet."""
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
