"""What the scenarios about instances that come and go have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.measure.content import content_digest
from testbed.measure.fetch import Target
from testbed.model.quantities import parse_duration_us
from testbed.tor.onion.instances import signal_number
from testbed.tor.torrc import HTTP_PORT

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.measure.measure import Measure
    from testbed.tor.measure.clientlog import IntroductionLogs
    from testbed.tor.network import TorNetwork
    from testbed.tor.onion.services import OnionServices
    from testbed.tor.spec import OnionSpec

EXPECTED = {"expect_failures": True}
"""Detail of a step whose downloads are meant to fail."""
_TELLING = {"nack", "stalled", "fetch", "descriptor", "useless"}


@dataclass(frozen=True)
class Subject:
    """The service that a scenario measures."""

    onions: OnionServices
    measure: Measure
    service: str

    @property
    def spec(self) -> OnionSpec:
        """Of the service, as the topology has it."""
        return self.onions.services[self.service]

    @property
    def other(self) -> str:
        """Another service of the topology, for traffic beside that of this one; empty if there is none."""
        return next((name for name in self.onions.services if name != self.service), "")

    def start_other(self) -> None:
        """Start the other service, if there is one."""
        if self.other:
            self.onions.start(self.other, progress=self.measure.progress)

    def watch(self) -> None:
        """Sample from now on what each instance sends and gets."""
        self.measure.watch(self.onions.lab, self.spec.attach or "core", self.onions.instances(self.service))

    def trial(self, number: int, publish: str, repeat: int) -> Trial:
        """One trial with it."""
        return Trial(self.onions, self.measure, self.service, number, publish, repeat)


@dataclass(frozen=True)
class Trial(Subject):
    """So many instances of a service, that publish in one way, in one repeat."""

    number: int
    publish: str
    repeat: int

    @property
    def running(self) -> list[str]:
        """The instances that run now."""
        return self.onions.running(self.service)

    @property
    def told(self) -> dict[str, Any]:
        """What a step of it says in the run."""
        return {"n": self.number, "nodes": self.running, "publish": self.publish, "repeat": self.repeat}

    def named(self, *words: str) -> str:
        """The name of a step in which it is told from others by these words: ``n3-naive-r1``."""
        return "-".join([f"n{self.number}", *words, f"r{self.repeat}"])

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Its instances have published when the block begins, and are ended after it."""
        self.onions.start(self.service, self.number, self.publish, progress=self.measure.progress)
        try:
            yield
        finally:
            self.onions.stop(self.service)


def first_service(lab: Lab, measure: Measure) -> Subject:
    """The first onion service of the topology."""
    onions: OnionServices = lab.subsystem("onions")
    return Subject(onions, measure, next(iter(onions.services)))


def onion_target(onions: OnionServices, service: str) -> Target:
    """The file that a service serves, and what it must be."""
    size = onions.services[service].content.size
    digest = content_digest(size, onions.lab.plan.seed)
    return Target(onions.address(service), HTTP_PORT, "/file", size, digest)


def sockets(tor: TorNetwork) -> Mapping[str, Path]:
    """The SOCKS socket of every client."""
    return {name: tor.socks_path(name) for name in tor.clients}


def fitting(measure: Measure, parameter: str, most: int, least: int = 1) -> list[int]:
    """The numbers of a parameter that a topology with ``most`` instances can do; TestbedError if there is none."""
    wanted = measure.integers(parameter)
    found = [number for number in wanted if least <= number <= most]
    if not found:
        raise TestbedError(
            f"the topology allows for {least} to {most}, {parameter} is {measure.text(parameter)}",
            remedy=f"set --param {parameter}={most}, or give the service more `instances`",
        )
    return found


def one_number(measure: Measure, parameter: str) -> int:
    """A parameter that is one whole number of at least 1; TestbedError if it is not."""
    found = measure.integers(parameter)
    if len(found) != 1 or found[0] < 1:
        raise TestbedError(
            f"parameter {parameter}: {measure.text(parameter)!r} is not one whole number above 0",
            remedy=f"write --param {parameter}=3",
        )
    return found[0]


def signals(measure: Measure) -> dict[str, int]:
    """Names and numbers of the signals in the parameter ``signal``; TestbedError for what is none."""
    return {name: signal_number(name) for name in measure.words("signal")}


def traffics(measure: Measure, other: str) -> dict[str, tuple[str, float]]:
    """The kinds of light traffic in the parameter ``traffic``: which service is fetched, and seconds between requests.

    ``none`` is no traffic; so is everything where there is no ``other`` service. TestbedError for what is neither
    ``none`` nor a duration.
    """
    found = {}
    for word in measure.words("traffic"):
        try:
            pause = 0.0 if word == "none" else parse_duration_us(word) / 1e6
        except ValueError as error:
            raise TestbedError(f"parameter traffic: {error}", remedy="write --param traffic=none,5s") from error
        if other and pause:
            found[word] = (other, pause)
        else:
            found["none"] = ("", 0.0)
    return found


def moment(measure: Measure, step: str, what: str, node: str = "", *, t: float | None = None) -> None:
    """Record when something was done to the service: ``stopped``, ``started``, ``published`` and so on."""
    measure.run.event("moment", node, t=t, step=step, what=what)


def record_introductions(
    measure: Measure,
    step: str,
    logs: IntroductionLogs,
    clients: Iterable[str],
    since: float,
    until: Mapping[str, float],
) -> None:
    """Record what each client logged of its introductions from ``since`` until its own ``until`` (or to the end).

    Only what tells why it took long: refusals, stalls, and descriptors that were asked for.
    """
    for client in clients:
        end = until.get(client, float("inf"))
        for mark in logs.marks(client):
            if mark.what in _TELLING and since <= mark.t + mark.seconds and mark.t <= end:
                measure.run.event(
                    "introduction",
                    client,
                    t=max(mark.t, since),
                    step=step,
                    what=mark.what,
                    relay=mark.relay,
                    seconds=round(mark.seconds - max(0.0, since - mark.t), 3),
                )
