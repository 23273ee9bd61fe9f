"""Following a lab's events on disk, whichever process writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Tail:
    """The events that are written from now on, or from the beginning."""

    def __init__(self, lab_folder: Path, *, from_start: bool = False) -> None:
        self._path = lab_folder / "events.jsonl"
        self._offset = 0 if from_start or not self._path.exists() else self._path.stat().st_size

    def new(self) -> list[dict[str, Any]]:
        """The events since the last call; a line that is not whole yet is left for the next one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:  # the lab is gone
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
