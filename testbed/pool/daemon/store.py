"""The shared storage of a pool: values by name, changed only by compare-and-set, kept in a file.

``python -m testbed.pool.daemon.store FILE ADDRESS PORT``. A change is in the file before it is answered, so that a
store that is killed and started again knows all that it has said.

=======  ==============================  ====================================================
``op``   with                            answer
=======  ==============================  ====================================================
get      ``key``                         ``version``, ``value`` (null at first), ``opened``
set      ``key``, ``version``, ``value``  ``done``: whether ``version`` still was the current one
=======  ==============================  ====================================================

``opened``: monotonic nanoseconds at which this process began to answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.lab.state import write_atomically
from testbed.pool.agents.machine import State
from testbed.pool.agents.store import Entry, Record, Seen, StoreLost
from testbed.pool.daemon import rpc


class FileStore:
    """The values and their file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._opened = time.monotonic_ns()
        self._values: dict[str, tuple[int, Any]] = {}
        if path.exists():
            self._values = {key: (version, value) for key, (version, value) in json.loads(path.read_text()).items()}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """See the module."""
        key = str(request["key"])
        with self._lock:
            version, value = self._values.get(key, (0, None))
            if request["op"] == "get":
                return {"version": version, "value": value, "opened": self._opened}
            if request["op"] != "set":
                raise ValueError(f"there is no {request['op']!r}")
            if request["version"] != version:
                return {"done": False}
            values = {**self._values, key: (version + 1, request["value"])}
            write_atomically(self._path, json.dumps(values))
            self._values = values
            return {"done": True}


class RemoteStore:
    """One agent's way to the store."""

    def __init__(self, client: rpc.Client, key: str, start: int, speed: float) -> None:
        """``start``: monotonic nanoseconds at which the pool's time is 0."""
        self._client, self._key, self._start, self._speed = client, key, start, speed

    def read(self) -> Seen:
        """See ``Store``."""
        answer = self._ask({"op": "get"})
        opened = int((answer["opened"] - self._start) * self._speed / 1000)
        return Seen(answer["version"], record_of(answer["value"]), opened)

    def swap(self, version: int, record: Record) -> bool:
        """See ``Store``."""
        return bool(self._ask({"op": "set", "version": version, "value": plain(record)})["done"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._client.call({"key": self._key, **request})
        except rpc.Lost as error:
            raise StoreLost(error.what) from error


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON."""
    entries = {name: [e.state.value, e.since, e.attacks, e.alive_until] for name, e in record.servers.items()}
    fields = ("epoch", "holder", "since", "lease", "winner", "attacks", "detections")
    return {**{field: getattr(record, field) for field in fields}, "servers": entries}


def record_of(data: Mapping[str, Any] | None) -> Record:
    """The reverse; nothing is an empty record."""
    if data is None:
        return Record()
    servers = {name: Entry(State(state), *rest) for name, (state, *rest) in data["servers"].items()}
    return Record(**{**data, "servers": servers, "detections": tuple(data["detections"])})


def main(arguments: list[str]) -> None:
    """Serve for ever."""
    path, address, port = arguments
    rpc.serve(address, int(port), FileStore(Path(path)).answer)


if __name__ == "__main__":
    main(sys.argv[1:])
