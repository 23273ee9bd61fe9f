"""A made-up run of the onion experiment with everything in it that a real one has. For tests only.

A small model stands in for the network: each client picks one of six HSDirs, its descriptor names an instance, and an
instance shares its rate equally among the downloads under way. The numbers mean nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testbed.measure.store import Run
from testbed.plan.types import Node, Plan

HSDIRS = [f"relay{number}" for number in (4, 9, 12, 17, 21, 30)]
RATE = 1.0e6
PERIOD = 0.5


@dataclass
class _Download:
    client: str
    number: int
    started: float
    instance: str
    left: float
    wait: float
    first_byte: float | None = None


@dataclass
class FakeRun:
    """What to make up."""

    root: Path
    repeats: int = 3
    numbers: Sequence[int] = (1, 2, 3, 6)
    ways: Sequence[str] = ("naive", "simultaneous")
    clients: int = 30
    seconds: float = 60.0
    size: int = 2**20
    busy: float = 0.55
    failing: float = 0.0008
    instance: str = "shop"
    title: str = ""
    topology: str = "name: onion-paper\nseed: 1\ntor: {authorities: 1, relays: 30, exits: 10, clients: 30}\n"
    seed: int = 1
    counters: bool = True
    headers: bool = True
    readings: bool = True
    status: str | None = "passed"
    sent: dict[str, float] = field(default_factory=dict)

    def make(self) -> Path:
        """Write the run; its folder."""
        self.random = random.Random(self.seed)
        self.run = Run.create(
            self.root,
            "onion_load",
            self._plan(),
            seed=self.seed,
            title=self.title,
            topology=self.topology,
            manifest={"repeats": self.repeats, "parameters": {"instances": "1,2,3,6", "seconds": "60s"}},
        )
        self.now = 0.0
        for stage in ("descriptors", "consensus", "relays", "clients"):
            self.now += 5
            self.run.event("stage", t=self.run.clock + self.now, stage=stage, count=41, note="")
        for repeat in range(1, self.repeats + 1):
            for index, way in enumerate(self.ways):
                for number in self.numbers:
                    if number > 1 or index == 0:
                        self._step(number, way, repeat)
        if self.status:
            self.run.close(self.status)
        return self.run.path

    def _plan(self) -> Plan:
        relays = [Node(name=f"relay{number}", subsystem="tor", role="relay") for number in range(1, 31)]
        clients = [Node(name=f"client{number}", subsystem="tor", role="client") for number in range(1, 31)]
        instances = [Node(name=self._name(number), subsystem="onions", role="shop") for number in range(1, 7)]
        nodes = [Node(name="core", kind="router"), *relays, *clients, *instances]
        return Plan(name="onion-paper", seed=self.seed, nodes=tuple(nodes))

    def _name(self, number: int) -> str:
        return f"{self.instance}{number}"

    def _step(self, number: int, way: str, repeat: int) -> None:
        self.now += 6
        name = f"n{number}-{way}-r{repeat}"
        detail = {"step": name, "instances": number, "publish": way, "repeat": repeat, "seconds": self.seconds}
        start = self.now
        self._tell("step", edge="start", **detail)
        held = self._publish(number, way)
        if self.readings:
            self._read(name, held)
        working = [self._begin(f"client{index}", 1, held) for index in range(1, self.clients + 1)]
        last_sample = -1.0
        while self.now < start + self.seconds:
            if self.now - last_sample >= PERIOD:
                self._sample(number)
                last_sample = self.now
            self.now += 0.05
            if way == "naive" and number > 2 and self.random.random() < 0.0008:
                held[self.random.choice(HSDIRS)] = self._name(self.random.randint(1, number))
                if self.readings:
                    self._read(name, held)
            working = self._advance(name, working, held)
        for download in working:
            self._finish(name, download, "unfinished")
        if self.readings:
            self._read(name, held)
        self._sample(number)
        self._tell("step", edge="end", **detail)

    def _publish(self, number: int, way: str) -> dict[str, str]:
        names = [self._name(index) for index in range(1, number + 1)]
        if way == "naive":  # the newest descriptor wins on most, some are slow
            weights = [1.0 + 2.5 * index for index in range(number)]
            self.random.shuffle(weights)
            return {hsdir: self.random.choices(names, weights)[0] for hsdir in HSDIRS}
        order = [names[index % number] for index in range(len(HSDIRS))]
        if self.random.random() < 0.5 and number > 1:
            order[0] = order[1]
        return dict(zip(HSDIRS, order, strict=True))

    def _begin(self, client: str, number: int, held: dict[str, str]) -> _Download:
        return _Download(
            client, number, self.now, held[self.random.choice(HSDIRS)], self.size, self.random.gammavariate(4, 0.1)
        )

    def _advance(self, step: str, working: list[_Download], held: dict[str, str]) -> list[_Download]:
        going: list[_Download] = []
        for download in working:
            waiting = self.now - download.started < download.wait
            if not waiting:
                download.first_byte = download.first_byte or self.now
                active = sum(d.instance == download.instance and d.first_byte is not None for d in working)
                amount = min(download.left, 0.05 * RATE / max(1, active))
                download.left -= amount
                self.sent[download.instance] = self.sent.get(download.instance, 1e4) + 1.04 * amount
            failed = self.random.random() < self.failing * 0.05
            if download.left > 0 and not failed:
                going.append(download)
                continue
            self._finish(step, download, self.random.choice(["timeout", "socks-4"]) if failed else "ok")
            going.append(self._begin(download.client, download.number + 1, held))
        return going

    def _finish(self, step: str, download: _Download, outcome: str) -> None:
        self._tell(
            "download",
            download.client,
            step=step,
            number=download.number,
            started=download.started,
            first_byte=download.first_byte,
            last_byte=self.now if outcome == "ok" else None,
            ended=self.now,
            bytes=int(self.size - max(0.0, download.left)),
            outcome=outcome,
            instance=download.instance if self.headers and download.first_byte else "",
        )

    def _read(self, step: str, held: dict[str, str]) -> None:
        for hsdir, instance in held.items():
            revision = 1_408_285_660 + 37 * (hash_of(instance) % 90)
            self._tell(
                "hsdir", hsdir, step=step, service="shop", fingerprint="A" * 40, instance=instance, revision=revision
            )

    def _sample(self, number: int) -> None:
        t = self.run.clock + self.now
        rows = [(t, "cpu_busy", "", min(1.0, max(0.0, self.random.gauss(self.busy, 0.05))))]
        rows += [(t, "cpu_steal", "", 0.0), (t, "sampling_cost", "", 0.0007), (t, "sampling_late", "", 0.0002)]
        if self.counters:
            for index in range(1, max(6, number) + 1):
                name = self._name(index)
                self.sent[name] = self.sent.get(name, 1e4) + 500 * PERIOD
                rows.append((t, "bytes_from", name, self.sent[name]))
        self.run.samples(rows)

    def _tell(self, kind: str, node: str = "", **detail: object) -> None:
        self.run.event(kind, node, t=self.run.clock + self.now, **detail)


def hash_of(text: str) -> int:
    """The same in every process, unlike ``hash``."""
    return sum(text.encode())
