"""What the supervisor knows of its links, and keeps on disk so that a restart has the live values."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.net.wire.settings import NONE, Settings

SOCKET, STATE, LOG, LOCK, EVENTS = "wire.sock", "wire.json", "wire.log", "wire.lock", "events.jsonl"
"""Names in the lab's folder."""


@dataclass(frozen=True, slots=True)
class TapEnd:
    """One end of a link: a TAP in a node's namespace."""

    namespace: str
    """Path by which the namespace can be entered."""
    ifname: str


@dataclass(frozen=True, slots=True)
class WireLink:
    """A link as it is now."""

    name: str
    a: TapEnd
    b: TapEnd
    seed: int = 0
    """Of the whole plan; each direction derives its own from it and the link's name."""
    forward: Settings = NONE
    backward: Settings = NONE
    up: bool = True

    def settings(self, direction: str) -> Settings:
        """The settings of ``forward`` or ``backward``."""
        return self.forward if direction == "forward" else self.backward

    def source(self, direction: str) -> TapEnd:
        """The end at which frames of a direction come in."""
        return self.a if direction == "forward" else self.b

    def with_settings(self, direction: str, settings: Settings) -> WireLink:
        """A copy with the settings of one direction replaced."""
        return replace(self, forward=settings) if direction == "forward" else replace(self, backward=settings)


def link_of(data: dict[str, Any]) -> WireLink:
    """The link in plain data; TypeError, KeyError or TestbedError if it is none."""
    parts = dict(data)
    for end in ("a", "b"):
        parts[end] = TapEnd(**parts[end])
    for direction in ("forward", "backward"):
        parts[direction] = Settings(**parts.get(direction, {}))
    return WireLink(**parts)


@dataclass
class State:
    """All links by name, and how often a core has been started."""

    lab: str
    links: dict[str, WireLink]
    generation: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """Under which number cores know and count each link."""

    def __post_init__(self) -> None:
        for name in self.links:
            self.number(name)

    def number(self, name: str) -> int:
        """A link's number: the least that is free, if it has none yet."""
        if name not in self.numbers:
            used = set(self.numbers.values())
            self.numbers[name] = next(number for number in range(len(used) + 1) if number not in used)
        return self.numbers[name]

    def save(self, folder: Path) -> None:
        """Replace the file in one step. No fsync: the links live no longer than the machine."""
        links = [asdict(link) for link in self.links.values()]
        data = {"lab": self.lab, "generation": self.generation, "links": links, "numbers": self.numbers}
        fresh = folder / f".{STATE}.{os.getpid()}"
        fresh.write_text(json.dumps(data))
        fresh.replace(folder / STATE)


def load(folder: Path) -> State:
    """What ``save`` wrote."""
    data = json.loads((folder / STATE).read_text())
    links = [link_of(item) for item in data["links"]]
    return State(data["lab"], {link.name: link for link in links}, data["generation"], data["numbers"])


def append_event(folder: Path, kind: str, **detail: Any) -> None:
    """Append to the lab's events, in the form of ``Lab.event``."""
    line = json.dumps({"t": time.monotonic(), "wall": time.time(), "kind": kind, "node": "", **detail})
    try:
        with (folder / EVENTS).open("a") as file:
            file.write(line + "\n")
    except FileNotFoundError:
        pass  # the lab is being taken down
