"""What a scenario holds in its hand: the run that it records, its repeats, parameters and samplers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError
from testbed.measure.probes.methods import ProbeMethods
from testbed.measure.sampler import Sampler, link_counters
from testbed.model.quantities import parse_duration_us

if TYPE_CHECKING:
    from testbed.lab.lab import Lab
    from testbed.measure.capture import Capture
    from testbed.measure.fidelity import Fidelity
    from testbed.measure.store import Run
    from testbed.progress import Progress


class Measure(ProbeMethods):
    """The fixture ``measure``. ``repeats`` and ``seed`` come from the command line, ``parameters`` too."""

    def __init__(self, run: Run, *, repeats: int, seed: int, parameters: Mapping[str, str], progress: Progress) -> None:
        self.run = run
        self.repeats = repeats
        self.seed = seed
        self.progress = progress
        self._parameters = dict(parameters)
        self._samplers: list[Sampler | Capture] = []

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    def event(self, kind: str, node: str = "", **detail: Any) -> None:
        """Record that something happened now."""
        self.run.event(kind, node, **detail)

    @contextmanager
    def step(self, name: str, **detail: Any) -> Iterator[None]:
        """A part of the run whose figures belong together."""
        with self.run.step(name, **detail):
            yield

    def watch(self, lab: Lab, router: str, nodes: Iterable[str], *, period: float = 0.5) -> Sampler:
        """Sample from now on: the CPU, and what each node sends and gets at ``router``."""
        nodes = [lab.node(name).name for name in nodes]
        sampler = Sampler(self.run, period=period)
        sampler.interfaces(lab.namespace(router), link_counters(lab.plan, lab.node(router).name, nodes))
        sampler.start()
        self._samplers.append(sampler)
        return sampler

    def capture(self, lab: Lab, place: str, *, filter: str = "", seconds: float | None = None) -> Capture:
        """Capture packets from now on at ``a:eth0``, or at all interfaces of ``a``, into the run's ``pcap`` folder.

        It ends with the scenario, or after ``seconds``. See ``capture.Capture``.
        """
        from testbed.measure.capture import Capture, parse_place

        node, interface = parse_place(place)
        stem = node if interface is None else f"{node}-{interface}"
        taken = {path.name for path in (self.path / "pcap").iterdir()}
        names = (f"{stem}.pcapng" if number == 1 else f"{stem}.{number}.pcapng" for number in count(1))
        file = self.path / "pcap" / next(name for name in names if name not in taken)
        capture = Capture(lab, node, interface, file=file, filter=filter, seconds=seconds, recorder=self.run)
        self._samplers.append(capture.start())
        return capture

    def check_fidelity(self, lab: Lab, *, links: int | None = None) -> Fidelity:
        """Try a sample of the lab's links; one that is not what the plan says makes the run INVALID.

        The plugin does this before a scenario that measures. At most ``links`` are tried; see ``fidelity``.
        """
        from testbed.measure import fidelity

        self.progress.update("link check", 0, 1)
        found = fidelity.check_fidelity(
            lab, links=fidelity.LINKS if links is None else links, seed=self.seed, recorder=self.run
        )
        for reason in found.reasons:
            self.run.invalid(reason)
        self.progress.update("link check", 1, 1)
        return found

    def text(self, name: str) -> str:
        """The parameter ``name`` as written; KeyError if the scenario's marker does not declare it."""
        return self._parameters[name]

    def seconds(self, name: str) -> float:
        """The parameter ``name``, a duration with a unit such as ``8s``, in seconds."""
        try:
            return parse_duration_us(self.text(name)) / 1e6
        except ValueError as error:
            raise TestbedError(f"parameter {name}: {error}", remedy=f"write {name}=8s") from error

    def integers(self, name: str) -> list[int]:
        """The parameter ``name``, whole numbers separated by commas."""
        try:
            return [int(word) for word in self.words(name)]
        except ValueError:
            raise TestbedError(
                f"parameter {name}: {self.text(name)!r} is not a list of whole numbers", remedy=f"write {name}=1,3"
            ) from None

    def words(self, name: str) -> list[str]:
        """The parameter ``name``, words separated by commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def stop(self) -> None:
        """End every sampler and capture; the last values are in the store afterwards. A second call is idle."""
        samplers, self._samplers = self._samplers, []
        failure: Exception | None = None
        for sampler in samplers:
            try:
                sampler.stop()
            except Exception as error:  # the others must end as well
                failure = failure or error
        if failure:
            raise failure
