"""What the programs of a pool are told when they start: one file for all, beside the lab's state."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.lab.lab import Lab
from testbed.lab.state import Folder, write_atomically
from testbed.plan.types import Plan
from testbed.pool.agents.build import policy_of, schedule_of, timing_of
from testbed.pool.agents.clock import RealClock
from testbed.pool.agents.competition import Policy
from testbed.pool.agents.timing import Timing
from testbed.pool.lab.dataplane import Service
from testbed.pool.lab.layout import Layout, management_end, service_of
from testbed.pool.schedule.scheduler import Schedule
from testbed.pool.schedule.sequences import Live
from testbed.pool.spec import PoolSpec


@dataclass(frozen=True)
class World:
    """One pool of one lab, as its programs know it."""

    lab: Lab
    pool: str
    spec: PoolSpec

    @cached_property
    def layout(self) -> Layout:
        """Its nodes."""
        return Layout.of(self.pool, self.spec)

    @property
    def folder(self) -> Path:
        """What only root may read: pristine files, manifests, what servers left."""
        return self.lab.folder / "pool" / self.pool

    @property
    def timing(self) -> Timing:
        """How patient its agents are."""
        return timing_of(self.spec)

    @property
    def policy(self) -> Policy:
        """How the next server is chosen."""
        return policy_of(self.spec, list(self.layout.servers), self.lab.plan.seed)

    @property
    def schedule(self) -> tuple[Schedule, Live | None]:
        """A schedule of one's own. Files of bits have been read into the section when the pool was started."""
        return schedule_of(self.spec, self.lab.plan.seed, Path("/nonexistent"))

    @property
    def mode(self) -> str:
        """What becomes of connections. Those of name servers are short and cannot be moved, so they finish."""
        return "drain" if self.spec.service == "dns" and self.spec.connections == "migrate" else self.spec.connections

    @property
    def service(self) -> Service:
        """Service address and ports."""
        return service_of(self.pool, self.spec, self.lab.plan)

    def address(self, node: str) -> str:
        """A node's address on the management network."""
        return str(management_end(self.lab.plan, node).addresses[0].ip)

    def event(self, what: str, server: str = "", **detail: Any) -> None:
        """Note in the lab's events that something happened in this pool."""
        self.lab.event("pool", server, pool=self.pool, what=what, **detail)

    @property
    def started(self) -> int | None:
        """Monotonic nanoseconds at which the pool's time is 0; None before anybody has said so."""
        try:
            return int(json.loads((self.folder / "start.json").read_text())["start"])
        except FileNotFoundError:
            return None

    def begin(self, start: int) -> None:
        """Say when the pool's time is 0."""
        write_atomically(self.folder / "start.json", json.dumps({"start": start, "speed": self.spec.speed}))

    def clock(self) -> RealClock:
        """The pool's time, once it is known when it begins."""
        while (start := self.started) is None:
            time.sleep(0.005)
        return RealClock(self.spec.speed, start)


def save(lab: Lab, pool: str, spec: PoolSpec) -> World:
    """Make a pool's folder and leave there what its programs must know."""
    world = World(lab, pool, spec)
    (lab.folder / "pool").mkdir(mode=0o700, exist_ok=True)
    world.folder.mkdir(mode=0o700, exist_ok=True)
    data = {"lab": lab.id, "pool": pool, "spec": spec.model_dump(mode="json")}
    write_atomically(world.folder / "pool.json", json.dumps(data))
    return world


def load(path: str) -> World:
    """From the file that ``save`` left. TestbedError if the lab is gone."""
    data = json.loads(Path(path).read_text())
    folder = Folder(data["lab"])
    record = folder.read()
    if record is None:
        raise TestbedError(f"lab {data['lab']} is gone")
    lab = Lab(folder, record, Plan.model_validate_json(folder.plan.read_text()))
    return World(lab, data["pool"], PoolSpec.model_validate(data["spec"]))
